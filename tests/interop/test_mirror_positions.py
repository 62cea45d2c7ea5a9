"""Official readers with positions from the source of a mirror: on the mirror, and on the promoted mirror, exactly.

Two nodes: `edge` has a stream that scales, and pushes it to `core`.  Pravega's Java client and its Python client, which
is the Rust client, read some events at the edge and take stream cuts; from these they go on at the core, where they get
each of the other events once, in order for each key: from the mirror, and after its promotion with what was written
there, behind an epoch a million numbers later.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerMissing
from sarit.client import aio
from sarit.core import cuts
from sarit.core.errors import NotFound
from sarit.core.links import LinkDirection, LinkSettings
from sarit.rpc.generated import sarit_pb2 as pb
from sarit.rpc.link_messages import settings_message
from tests.interop.java_peer import compiled
from tests.limits import HANG_SECONDS, patient
from tests.nodes import RunningNode

ROOT = Path(__file__).resolve().parents[2]
STREAM = "s/t"
KEYS = 12
QUIET_MS = 6000  # a client takes the segments behind ended ones with its next checkpoint
ALL = 1_000_000
# The official Python client: commands on its input, answers on its output.  A cut stays in the process.
RUST = """
import asyncio, json, sys
from tests.interop.scenarios.tools import take
from tests.secured import official_manager
cuts = {"head": None}
for line in sys.stdin:
    endpoint, group, begin, end, count, seconds = json.loads(line)
    manager = official_manager(endpoint)
    at = [] if cuts[begin] is None else [False, cuts[begin]]
    made = manager.create_reader_group(group, "s", "t", *at)
    reader = made.create_reader("rust")
    events = asyncio.run(take(reader, count, seconds))
    if end:
        reader.reader_offline()
        cuts[end] = made.get_streamcut()
    print(json.dumps([bytes(event).decode() for event in events]), flush=True)
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    try:
        return compiled(tmp_path_factory.mktemp("classes"), Path(__file__).parent / "java" / "PositionPeer.java")
    except PeerMissing as error:
        pytest.skip(f"no Java client to read with: {error}")


class Java:
    """Reads with the Java client, in a new group each time; a cut is a text."""

    def __init__(self, classes: str) -> None:
        self._classes = classes
        self._groups = 0

    def read(self, endpoint: str, begin: str, count: int = ALL) -> tuple[list[str], str, str]:
        """Return the events from a cut on, the cut behind them, and an error."""
        self._groups += 1
        arguments = [endpoint, "s", f"java{self._groups}", "t", begin, str(count), str(QUIET_MS)]
        done = subprocess.run(
            ["java", "-Xmx256m", "-cp", self._classes, "PositionPeer", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=HANG_SECONDS,
            cwd=self._classes.rpartition(":")[2],
        )  # fmt: skip
        said = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
        found = {kind: [text for one, text in said if one == kind] for kind in ("event", "cut", "failed")}
        return found["event"], *("".join(found[kind][-1:]) for kind in ("cut", "failed"))


class Rust:
    """Reads with the official Python client, in a new group each time; a cut has a name."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", RUST], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self._groups = 0

    def read(self, endpoint: str, begin: str, end: str = "", count: int = ALL, quiet: bool = False) -> list[str]:
        """Return the events from the cut `begin` on, and keep the cut behind them as `end`.

        `quiet`: one more may come, for which to wait, is an error of the caller's."""
        self._groups += 1
        seconds = QUIET_MS / 1000 if quiet else patient(40.0)
        asked = [endpoint, f"rust{self._groups}", begin, end, count, seconds]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def events(kind: str, count: int) -> list[str]:
    return [f"{n % KEYS}:{kind}:{n:04}" for n in range(count)]


async def write(endpoint: str, what: list[str]) -> None:
    async with await aio.connect(endpoint) as client, client.writer(STREAM) as writer:
        for event in what:
            writer.write(event.encode(), key=event.partition(":")[0])


async def created(endpoint: str) -> list[str]:
    """A stream of two segments, with events."""
    async with await aio.connect(endpoint) as client:
        await client.create_scope("s")
        await client.create_stream(STREAM, segments=2)
    await write(endpoint, events("a", 150))
    return events("a", 150)


async def scaled(endpoint: str) -> list[str]:
    """The stream has three segments now, with more events."""
    async with await aio.connect(endpoint) as client:
        assert await client.stream(STREAM).scale(3)
    await write(endpoint, events("b", 150))
    return events("b", 150)


async def linked(edge: str, core: str) -> None:
    settings = settings_message(LinkSettings(LinkDirection.PUSH, core, include=("s/*",)))
    async with await aio.connect(edge) as client:
        request = pb.CreateLinkRequest(name="up", linkId=os.urandom(16), settings=settings)
        await client.session.controller.call(client.session.controller.sarit_stub.createLink, request)


async def promoted(core: str) -> None:
    async with await aio.connect(core) as client:
        while True:
            request = pb.PromoteLinkRequest(name="up", planned=False)
            done = await client.session.controller.call(client.session.controller.sarit_stub.promoteLink, request)
            assert not done.problems, done.problems
            if not done.left:
                return


async def until_copied(core: str, count: int) -> None:
    """Wait until so many events are in the mirror."""
    async with asyncio.timeout(HANG_SECONDS), await aio.connect(core) as client:
        while True:
            with suppress(NotFound):
                async with client.reader(STREAM, end="tail") as reader:
                    if len([event async for event in reader]) == count:
                        return
            await asyncio.sleep(0.2)


def check(before: list[str], after: list[str], everything: list[str]) -> None:
    """Nothing is missing, twice, or out of order for its key."""
    assert sorted(before + after) == sorted(everything)
    for key in {event.partition(":")[0] for event in everything}:
        expected = [event for event in everything if event.startswith(f"{key}:")]
        assert [event for event in before + after if event.startswith(f"{key}:")] == expected


@pytest.mark.long
@pytest.mark.timeout(400)
def test_official_readers_go_on_at_a_mirror_and_at_a_promoted_one(tmp_path, classes):
    with ExitStack() as stack:
        edge, core = (stack.enter_context(RunningNode(tmp_path / name)).controller for name in ("edge", "core"))
        java, rust = Java(classes), Rust()
        stack.callback(rust.close)
        written = asyncio.run(created(edge))
        # The Rust client's cut is that of a group which has read all that there is.
        rust_before = rust.read(edge, "head", "source", len(written))
        written += asyncio.run(scaled(edge))
        java_before, java_cut, _ = java.read(edge, "head", 100)
        asyncio.run(linked(edge, core))
        asyncio.run(until_copied(core, len(written)))
        # On the mirror: from a cut of the source, and on from a cut of the mirror.
        java_more, java_mirror, _ = java.read(core, java_cut, 60)
        rest, _, failed = java.read(core, java_mirror)
        assert not failed
        check([*java_before, *java_more], rest, written)
        rust_more = rust.read(core, "source", "mirror", len(written) - len(rust_before))
        check(rust_before, rust_more, written)
        assert not rust.read(core, "mirror", quiet=True), "an event came twice"
        # Promoted, with the source still there; then written at the core.
        asyncio.run(write(edge, events("c", 50)))
        written += events("c", 50)
        asyncio.run(until_copied(core, len(written)))
        asyncio.run(promoted(core))
        asyncio.run(write(core, events("d", 70)))
        written += events("d", 70)
        rest, java_end, failed = java.read(core, java_mirror)
        assert not failed
        check([*java_before, *java_more], rest, written)
        check(java_before, java.read(core, java_cut)[0], written)
        rust_rest = rust.read(core, "source", "promoted", len(written) - len(rust_before))
        check(rust_before, rust_rest, written)
        assert {segment.epoch for segment in cuts.from_text(java_end).positions} == {1_000_001}
