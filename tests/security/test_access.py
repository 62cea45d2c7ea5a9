"""Who may do what on a real node, by our client."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

import sarit
from sarit.client import aio
from sarit.client.core.login import BearerToken, default_credentials
from sarit.core.errors import Unauthenticated
from sarit.process.observation.logs import current_logs
from sarit.process.reload import LiveSettings
from sarit.security.oidc import OidcConfig
from tests.security.running import USERS, secured, write_files
from tests.unit.security.provider import AUDIENCE, ISSUER, document, published, token


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


def test_audit_log_of_a_flood_stays_small_and_names_what_was_left_out(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            access = node.node.security._access
            assert access is not None
            for number in range(5000):
                with pytest.raises(sarit.Unauthenticated):
                    await access.caller("createScope", f"Kind{number} " + "x" * 10_000, f"10.0.0.1:{number}")

    asyncio.run(main())
    path = tmp_path / "audit.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(line.get("left_out", 0) + 1 for line in lines if line["from"].startswith("10.0.0.1:")) >= 5000
    assert path.stat().st_size < 10_000
    assert path.stat().st_mode & 0o777 == 0o600


def test_token_of_a_provider_logs_in_with_its_roles_and_a_file_of_it_is_read_again(tmp_path):
    keys = tmp_path / "provider.json"
    keys.write_bytes(document(published("ES256"), published("EdDSA")))
    config = replace(write_files(tmp_path), oidc=OidcConfig(ISSUER, AUDIENCE, str(keys), roles=(("ops", "admin"),)))
    now = int(time.time())

    async def main() -> None:
        async with secured(tmp_path, config) as node:
            ops = BearerToken(token(roles=["ops"], exp=now + 300))
            async with await aio.connect(node.address, credentials=ops) as client:
                await client.create_scope("app")
                await client.create_stream("app/s")
                async with client.writer("app/s") as writer:
                    writer.write(b"one")
            for refused in (token(exp=now - 300), token("ES256", 1, exp=now + 300), token(aud="x", exp=now + 300)):
                with pytest.raises(sarit.Unauthenticated):
                    await aio.connect(node.address, credentials=BearerToken(refused))
            await node.grant(("role:analyst", "prn::/scope:app/*", "READ"))
            file = tmp_path / "token"
            file.write_text(token("EdDSA", exp=now + 300) + "\n")
            login = default_credentials({"SARIT_TOKEN_FILE": str(file)})
            async with await aio.connect(node.address, credentials=login) as client:
                async with client.reader("app/s") as reader:
                    assert await anext(aiter(reader)) == b"one"
                with pytest.raises(sarit.Forbidden, match="carol may not"):
                    await client.create_scope("other")
                file.write_text(token("EdDSA", exp=now + 300, roles=["ops"]))
                assert await client.create_scope("other")

    asyncio.run(main())


def test_new_user_is_known_once_a_process_has_reloaded(tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.process.security.SECURITY_FILES_INTERVAL_SECONDS", 3600)

    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            write_files(tmp_path, {**USERS, "carol": {"admin"}})
            with pytest.raises(Unauthenticated):
                async with node.client("carol") as carol:
                    await carol.create_scope("early")
            node.node.take_over(LiveSettings(current_logs(), node.node.config.times))
            async with node.client("carol") as carol:
                await carol.create_scope("later")

    asyncio.run(main())
