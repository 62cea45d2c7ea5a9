"""`make mirror-kills`: a link under load whose network is cut, and whose both nodes are killed, again and again.

Two real nodes and a proxy between them.  Writers of events and of transactions write into a stream of one segment and
into one of four, which is scaled now and then.  The network is cut by RST, and is away for a while after some of the
cuts; each node is killed by SIGKILL and starts again.  Now and then both sides are read: the mirror has the source's
bytes at the source's offsets (`checkers/mirror.py`), never less than before, and no part of a transaction.  After half
of the faults the mirror must reach what the source had when the fault was over, before the next one comes.  In the end
both are equal, nothing that was acknowledged is missing, and a client's reader gets all of it from the mirror.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from checkers import mirror as checker
from checkers.log import Violation
from checkers.mirror import Seen, SourceHistory
from sarit.core.errors import SaritError
from sarit.core.links import LinkDirection
from sarit.core.names import StreamName
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, Installation, LinkProxy, two_nodes, until, until_equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sarit.client import aio
    from sarit.controller.model.epochs import Epoch
    from tests.mirror.nodes import Whole

ONE: Final = StreamName(SCOPE, "one")
FOUR: Final = StreamName(SCOPE, "four")
NAMES: Final = (ONE, FOUR)
LINK: Final = "north"
DELAY_SECONDS: Final = 0.002
FAULTS_BETWEEN_COMPARISONS: Final = 5
FAULTS_BETWEEN_SCALES: Final = 7
_FRAME_BYTES: Final = 8
_PADDING: Final = b"." * 180


@dataclass(frozen=True)
class Plan:
    """What a run does.  `kills`: of both nodes together."""

    seed: int
    cuts: int
    kills: int
    direction: LinkDirection = LinkDirection.PUSH
    verbose: bool = False


@dataclass
class Result:
    """What a run found.  `waits`: the seconds from the end of a fault until the mirror had what the source had then."""

    struck: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    comparisons: int = 0
    scales: int = 0
    events: int = 0
    transactions: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    def line(self) -> str:
        """Everything in a line."""
        faults = ", ".join(f"{count} {what}" for what, count in sorted(self.struck.items()))
        waits = f"{median(self.waits):.1f} s, {max(self.waits):.1f} s at most" if self.waits else "not measured"
        return (
            f"{faults}; {self.broken} connections broken, {self.scales} scales, {self.events} events, "
            f"{self.transactions} transactions, {self.bytes} bytes, {self.comparisons} comparisons; "
            f"caught up after {waits}; {len(self.violations)} violations; {self.seconds:.0f} s"
        )


class Load:
    """Writes numbered events and transactions into a stream until it is stopped, through all restarts of its node."""

    def __init__(self, client: aio.Client, name: StreamName, draw: random.Random) -> None:
        self.name = name
        self.written = 0
        self.committed: dict[int, int] = {}  # number and size of each transaction whose commit was confirmed
        self.aborted: set[int] = set()
        self._client = client
        self._draw = draw
        self._begun = 0
        self._stopped = False

    async def run(self) -> None:
        """Write until `stop`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_events())
            for _ in range(2):
                group.create_task(self._write_transactions())

    def stop(self) -> None:
        """End after what is being written."""
        self._stopped = True

    async def _write_events(self) -> None:
        async with self._client.writer(self.name) as writer:
            while not self._stopped:
                for _ in range(5):
                    writer.write(b"e%08d" % self.written + _PADDING, key=str(self.written % 11))
                    self.written += 1
                await writer.flush()
                await asyncio.sleep(0.1)

    async def _write_transactions(self) -> None:
        async with self._client.transactional_writer(self.name) as writer:
            while not self._stopped:
                self._begun += 1
                number, size = self._begun, self._draw.choice((3, 8, 20))
                with suppress(SaritError):  # it may be committed or not
                    transaction = await writer.begin()
                    for index in range(size):
                        transaction.write(b"t%08d/%02d/%02d" % (number, index, size) + _PADDING, key=str(index))
                    if self._draw.random() < 0.15:
                        await transaction.abort()
                        self.aborted.add(number)
                    else:
                        await transaction.commit(wait=self._draw.random() < 0.5)
                        self.committed[number] = size
                await asyncio.sleep(self._draw.uniform(0.05, 0.3))

    def check(self, found: Iterable[bytes]) -> Iterator[Violation]:
        """Check the events that the mirror has in the end."""
        events, parts = parsed(found)
        if sorted(events.elements()) != list(range(self.written)):
            missing = [number for number in range(self.written) if number not in events]
            yield Violation(
                "lost", f"{self.name}: {self.written} events, {events.total()} found, without {missing[:9]}"
            )
        for number, size in self.committed.items():
            if sum(parts.get((number, size), Counter()).values()) != size:
                yield Violation("lost", f"{self.name}: transaction {number} is not there, which was committed")
        for number, _ in parts:
            if number in self.aborted:
                yield Violation("aborted", f"{self.name}: transaction {number} is there, which was aborted")


def parsed(found: Iterable[bytes]) -> tuple[Counter[int], dict[tuple[int, int], Counter[int]]]:
    """Return the numbers of single events, and those of each transaction, by its number and size."""
    events: Counter[int] = Counter()
    parts: dict[tuple[int, int], Counter[int]] = {}
    for event in found:
        if event[:1] == b"e":
            events[int(event[1:9])] += 1
        else:
            number, index, size = (int(part) for part in event[1 : -len(_PADDING)].split(b"/"))
            parts.setdefault((number, size), Counter())[index] += 1
    return events, parts


def halves(name: StreamName, found: Iterable[bytes]) -> Iterator[Violation]:
    """Check that each transaction is there once and whole, or not at all."""
    for (number, size), indexes in parsed(found)[1].items():
        if indexes != Counter(range(size)):
            yield Violation("half", f"{name}: of transaction {number} there is {sorted(indexes.elements())} of {size}")


def payloads(whole: Whole) -> Iterator[bytes]:
    """All events of a stream, segment by segment.  Raises ValueError: half an event is there."""
    for segment, (_, data) in whole.segments.items():
        at = 0
        while at < len(data):
            kind, length = (int.from_bytes(data[at + part : at + part + 4], "big") for part in (0, 4))
            if kind or at + _FRAME_BYTES + length > len(data):
                raise ValueError(f"segment {segment} has no event at {at} of {len(data)}")
            yield data[at + _FRAME_BYTES : at + _FRAME_BYTES + length]
            at += _FRAME_BYTES + length


def seen_of(whole: Whole) -> Seen:
    """What was read, for the checker."""

    def segments(epoch: Epoch) -> checker.Segments:
        return tuple((one.low, one.high, one.segment) for one in epoch.segments)

    return Seen(
        {epoch.number: segments(epoch) for epoch in whole.epochs},
        {segment: start for segment, (start, _) in whole.segments.items()},
        {segment: data for segment, (_, data) in whole.segments.items()},
        whole.closed,
        quiet=True,
    )


class Site:
    """Two installations, the network between them, and what was seen of the mirrors."""

    def __init__(self, edge: Installation, core: Installation, proxy: LinkProxy, plan: Plan) -> None:
        self.edge = edge
        self.core = core
        self.result = Result()
        self._proxy = proxy
        self._plan = plan
        self._draw = random.Random(plan.seed)
        self._last: dict[StreamName, Seen] = {}
        self._scaling: asyncio.Task[None] | None = None
        self._segments = 4

    async def begin(self) -> list[Load]:
        """Create the streams and the link; return what writes."""
        await self.edge.client.create_scope(SCOPE)
        await self.edge.client.create_stream(str(ONE))
        await self.edge.client.create_stream(str(FOUR), segments=4)
        self._proxy.delay_seconds = DELAY_SECONDS
        active = self.edge
        if self._plan.direction is LinkDirection.PULL:
            active, self._proxy.target = self.core, self.edge.node.controller
        await active.link(LINK, self._plan.direction, self._proxy.address, registry=False, tables=False)
        return [Load(self.edge.client, name, random.Random(self._draw.random())) for name in NAMES]

    async def strike_all(self) -> None:
        """Carry out all faults, in a drawn order."""
        half = self._plan.kills // 2
        faults = ["cut"] * self._plan.cuts + ["kill of the source"] * half + ["kill of the mirror"] * half
        self._draw.shuffle(faults)
        for turn, what in enumerate(faults, 1):
            await asyncio.sleep(self._draw.uniform(0.05, 0.6))
            if turn % FAULTS_BETWEEN_SCALES == 3:
                self._scale()
            await self._strike(what)
            wait = await self._caught_up() if self._draw.random() < 0.5 else -1.0
            if turn % FAULTS_BETWEEN_COMPARISONS == 0:
                await self.compare()
            if self._plan.verbose:
                caught_up = f", caught up after {wait:.1f} s" if wait >= 0 else ""
                print(f"  {turn}: {what}{caught_up}", flush=True)
            if self.result.violations:
                return

    async def _strike(self, what: str) -> None:
        self.result.struck[what] += 1
        if what != "cut":
            await (self.edge if what == "kill of the source" else self.core).restart(killed=True)
        elif self._draw.random() < 0.25:
            self._proxy.is_down = True
            self.result.broken += self._proxy.cut()
            await asyncio.sleep(self._draw.uniform(0.2, 1.5))
            self._proxy.come_up()
        else:
            self.result.broken += self._proxy.cut()

    def _scale(self) -> None:
        if self._scaling is not None and not self._scaling.done():
            return

        async def scale(segments: int) -> None:
            try:
                self.result.scales += await self.edge.client.stream(str(FOUR)).scale(segments)
            except SaritError as error:  # a node that is killed meanwhile may have done it or not
                print(f"  not scaled: {error}", flush=True)

        self._segments = self._draw.choice([segments for segments in range(4, 9) if segments != self._segments])
        self._scaling = asyncio.create_task(scale(self._segments))

    async def _caught_up(self) -> float:
        """Wait until the mirrors have what their sources have now; return the seconds."""
        began = time.monotonic()
        for name in NAMES:
            wanted = -1
            while wanted < 0:
                wanted = await self.edge.size(name)

            async def there(name: StreamName = name, wanted: int = wanted) -> bool:
                return await self.core.size(name) >= wanted

            await until(there, 0.05)
        self.result.waits.append(time.monotonic() - began)
        return self.result.waits[-1]

    async def compare(self) -> None:
        """Read both sides, the mirror first, and judge."""
        for name in NAMES:
            mirror, source = await self.core.whole(name), await self.edge.whole(name)
            if mirror is not None and source is not None:
                self._judge(name, mirror, source, caught_up=False)

    def _judge(self, name: StreamName, mirror: Whole, source: Whole, *, caught_up: bool) -> None:
        seen, there = seen_of(mirror), seen_of(source)
        sealed = {segment: there.lengths[segment] for segment in there.sealed if segment in there.lengths}
        history = SourceHistory(dict(there.epochs), dict(there.data), sealed)
        before = self._last.get(name)
        found = checker.check(history, [seen] if before is None else [before, seen], caught_up=caught_up)
        try:
            found += halves(name, payloads(mirror))
        except ValueError as error:
            found.append(Violation("half", f"{name}: {error}"))
        self.result.violations += found
        self.result.comparisons += 1
        self._last[name] = seen

    async def end(self, loads: list[Load]) -> None:
        """Wait until both sides are equal, and judge what the mirror has."""
        if self._scaling is not None:
            await self._scaling
        await until_equal(self.edge, self.core, NAMES)
        for load in loads:
            mirror, source = await self.core.whole(load.name), await self.edge.whole(load.name)
            assert mirror is not None
            assert source is not None
            self._judge(load.name, mirror, source, caught_up=True)
            found = list(payloads(mirror))
            self.result.violations += load.check(found)
            async with self.core.client.reader(load.name, end="tail") as reader:
                read = [bytes(event) async for event in reader]
            if sorted(read) != sorted(found):
                self.result.violations.append(
                    Violation("read", f"a reader of the mirror of {load.name} got {len(read)} of {len(found)} events")
                )
            self.result.events += load.written
            self.result.transactions += len(load.committed)
            self.result.bytes += mirror.size


async def run(directory: Path, plan: Plan) -> Result:
    """Make both nodes in a directory, and carry out a plan."""
    began = time.monotonic()
    async with two_nodes(directory) as (edge, core, proxy):
        site = Site(edge, core, proxy, plan)
        loads = await site.begin()
        tasks = [asyncio.create_task(load.run()) for load in loads]
        try:
            await site.strike_all()
            for load in loads:
                load.stop()
            await asyncio.gather(*tasks)
            if not site.result.violations:
                await asyncio.wait_for(site.end(loads), HANG_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
        site.result.seconds = time.monotonic() - began
        return site.result


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mirror.kills", description=__doc__)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--kills", type=int, default=40, help="of both nodes together")
    parser.add_argument("--seed", type=int, help="drawn when not given")
    parser.add_argument("--pull", action="store_true", help="the mirror's side runs the link")
    given = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it counts every write to a connection that was reset
    seed = int.from_bytes(os.urandom(3), "big") if given.seed is None else given.seed
    direction = LinkDirection.PULL if given.pull else LinkDirection.PUSH
    print(f"{given.cuts} cuts and {given.kills} kills, {direction.name}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sarit-mirror-kills-") as name:
        result = asyncio.run(run(Path(name), Plan(seed, given.cuts, given.kills, direction, verbose=True)))
    print(result.line(), flush=True)
    for violation in result.violations[:10]:
        print(f"  {violation}", flush=True)
    return bool(result.violations)


if __name__ == "__main__":
    sys.exit(main())
