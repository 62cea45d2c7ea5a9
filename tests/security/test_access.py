"""Who may do what on a real node, by our client."""

from __future__ import annotations

import asyncio
import json

import pytest

import sarit
from sarit.client import aio
from tests.security.running import secured, write_files


def test_calls_without_or_with_wrong_credentials_are_refused(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            with pytest.raises(sarit.Unauthenticated, match="log in"):
                await aio.connect(node.address)
            for user, password in (("alice", "wrong one"), ("nobody", "correct horse"), ("alice", "")):
                with pytest.raises(sarit.Unauthenticated, match="user or password is wrong"):
                    async with node.client(user, password):
                        pass

    asyncio.run(main())


def test_reader_reads_and_cannot_write_or_see_other_scopes(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            async with node.client("root") as root:
                for scope in ("app", "other"):
                    await root.create_scope(scope)
                    await root.create_stream(f"{scope}/s")
                async with root.writer("app/s") as writer:
                    writer.write(b"one")
            await node.grant(("user:alice", "prn::/scope:app", "READ"), ("user:alice", "prn::/scope:app/*", "READ"))
            async with node.client("alice") as alice:
                assert [name async for name in alice.list_scopes()] == ["app"]
                assert [str(name) async for name in alice.list_streams("app")] == ["app/s"]
                async with alice.reader("app/s") as reader:
                    assert await anext(aiter(reader)) == b"one"
                with pytest.raises(sarit.Forbidden, match="alice may not read prn::/scope:other/stream:s"):
                    await alice.stream_info("other/s")
                with pytest.raises(sarit.Forbidden):
                    async with alice.writer("app/s") as writer:
                        writer.write(b"two")
                with pytest.raises(sarit.Forbidden, match="sarit acl grant user:alice"):
                    await alice.create_scope("mine")

    asyncio.run(main())


def test_writer_writes_transactions_and_tables_with_its_rights(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            await node.grant(
                ("role:analyst", "prn::/scope:app", "READ_UPDATE"), ("role:analyst", "prn::/scope:app/*", "READ_UPDATE")
            )
            async with node.client("bob") as bob:
                await bob.create_scope("app")
                await bob.create_stream("app/s")
                async with bob.transactional_writer("app/s") as writer:
                    transaction = await writer.begin()
                    transaction.write(b"in a transaction", key="k")
                    await transaction.commit()
                async with bob.writer("app/s") as writer:
                    writer.write(b"plain")
                await bob.tables.create("app/t", primary_key_bytes=4)
                table = bob.table("app/t")
                await table.put(b"key1", b"v")
                assert (await table.get(b"key1")).value == b"v"
                async with bob.reader("app/s") as reader:
                    events = aiter(reader)
                    assert {await anext(events) for _ in range(2)} == {b"in a transaction", b"plain"}

    asyncio.run(main())


def test_audit_log_notes_refusals_and_grants_without_secrets(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            async with node.client("alice") as alice:
                with pytest.raises(sarit.Forbidden):
                    await alice.create_scope("app")
            await node.grant(("user:alice", "prn::/", "READ"))

    asyncio.run(main())
    text = (tmp_path / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    refused = next(line for line in lines if line["what"] == "createScope")
    assert (refused["who"], refused["resource"], refused["allowed"]) == ("alice", "prn::/scope:app", False)
    assert any(line["what"] == "changeRules" and line["who"] == "root" and line["allowed"] for line in lines)
    assert "correct horse" not in text
    assert "Basic" not in text
