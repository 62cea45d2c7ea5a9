"""Quotas on a real node, by our client and by the official one."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

import sarit
from sarit.client.core.quotas import change_quotas, list_quotas, quota_use
from sarit.core.errors import SaritError
from sarit.security.limits import QUOTA_BURST_SECONDS
from sarit.security.quotas import Quota
from tests.limits import HANG_SECONDS
from tests.security.running import PASSWORD, Secured, secured, write_files

PROGRAM = Path(__file__).with_name("throttled_client.py")
RATE = 1 << 20
MEBIBYTES = 3
# Less than one in the time that they are given is for what a burst and rounding may save.
LEAST_SECONDS = MEBIBYTES - QUOTA_BURST_SECONDS - 0.6


def test_quotas_on_one_node(tmp_path):
    async def main() -> None:
        async with secured(tmp_path, write_files(tmp_path)) as node:
            async with node.client("root") as root:
                await root.create_scope("limited")
                await root.create_stream("limited/s", segments=1)
            await node.grant(
                ("user:alice", "prn::/scope:limited", "READ_UPDATE"),
                ("user:alice", "prn::/scope:limited/*", "READ_UPDATE"),
            )
            await _only_administrators_change_them(node)
            await _counts_are_refused_with_the_reason(node)
            await _official_client_is_slower_and_gets_no_error(node)
            await _connections_of_a_user_are_refused(node)
            await _full_scope_waits_until_it_is_truncated(node)

    asyncio.run(main())


async def _set(node: Secured, subject: str, quota: Quota | None) -> None:
    async with node.client("root") as root:
        await change_quotas(root.session.controller, {subject: quota})


async def _only_administrators_change_them(node: Secured) -> None:
    async with node.client("alice") as alice:
        with pytest.raises(sarit.Forbidden):
            await change_quotas(alice.session.controller, {"scope:limited": Quota(streams=1)})
        with pytest.raises(sarit.Forbidden):
            await list_quotas(alice.session.controller)


async def _counts_are_refused_with_the_reason(node: Secured) -> None:
    await _set(node, "scope:limited", Quota(streams=2, segments=3))
    async with node.client("alice") as alice:
        with pytest.raises(sarit.Invalid, match="has 1 segments, and its quota is 3"):
            await alice.create_stream("limited/large", segments=3)
        await alice.create_stream("limited/second", segments=1)
        with pytest.raises(sarit.Invalid, match="has 2 streams, and its quota is 2"):
            await alice.create_stream("limited/third", segments=1)
        assert not await alice.create_stream("limited/second", segments=1)  # it exists: that is no refusal
        stream = alice.stream("limited/second")
        await stream.scale(2)
        with pytest.raises(sarit.Invalid, match="has 3 segments"):
            await stream.scale(4)
    async with node.client("root") as root:
        use = await quota_use(root.session.controller, "limited")
        assert (use.streams, use.segments) == (2, 3)


async def _official_client_is_slower_and_gets_no_error(node: Secured) -> None:
    await _set(node, "scope:limited", None)
    await _set(node, "user:alice", Quota(bytes_in=RATE, bytes_out=2 * RATE))
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), node.address, "alice", PASSWORD, str(MEBIBYTES),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(HANG_SECONDS):
        output, _ = await process.communicate()
    assert output.decode().split()[-1:] == [str(MEBIBYTES * 64)], output.decode()
    assert time.monotonic() - began > LEAST_SECONDS
    assert node.node.store.quotas.active


async def _connections_of_a_user_are_refused(node: Secured) -> None:
    async with node.client("alice") as alice, alice.writer("limited/s") as writer:
        writer.write(b"one")
        await writer.flush()
        await _set(node, "user:alice", Quota(connections=1))
        async with node.client("alice") as second:
            with pytest.raises(SaritError, match="as many connections as its quota allows"):
                async with second.reader("limited/s") as reader:
                    await anext(aiter(reader))
    await _set(node, "user:alice", None)


async def _full_scope_waits_until_it_is_truncated(node: Secured) -> None:
    await _set(node, "scope:limited", Quota(storage_bytes=1 << 20))
    controller = node.node.controller
    await controller.quotas.round()
    assert controller.quotas.quotas.full == {"limited"}
    async with node.client("alice") as alice:
        with pytest.raises(sarit.Invalid, match="has used its quota of 1048576 bytes"):
            await alice.create_stream("limited/more")
        async with alice.writer("limited/s") as writer:
            writer.write(b"one")
            waiting = asyncio.ensure_future(writer.flush())
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
            await alice.truncate_stream("limited/s", cut=await alice.stream_cut_tail("limited/s"))
            await controller.quotas.measure()
            await controller.quotas.round()
            async with asyncio.timeout(HANG_SECONDS):
                await waiting
    assert controller.quotas.quotas.full == set()
