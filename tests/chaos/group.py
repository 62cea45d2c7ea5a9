"""A reader group on the stream that scales; its readers are processes that are killed with -9 and replaced.

What a reader reported is processed, together with the position after it; its replacement passes that position to the
group.  So every event is processed exactly once over all readers, and each reader gets the events of a sequence in
order.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from checkers.log import Violation
from sarit.client.aio import connect
from sarit.client.groups.position import Position
from sarit.core.errors import Unavailable
from tests.chaos.elastic import NAME as STREAM
from tests.chaos.events import ROOT, SCOPE
from tests.chaos.parts import Pulse

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from sarit.client.aio import Client
    from tests.chaos.elastic import Elastic

GROUP: Final = f"{SCOPE}/workers"
_READERS: Final = 2
_CHECKPOINT_SECONDS: Final = 3.0
_SHOWN: Final = 3


class GroupReaders:
    """See the head of the module."""

    def __init__(self, elastic: Elastic) -> None:
        self.pulse = Pulse()
        self.kills = 0
        self._elastic = elastic
        self._rng = elastic.rng
        self._done: Counter[tuple[int, int]] = Counter()
        self._violations: list[Violation] = []
        self._processes: set[asyncio.subprocess.Process] = set()
        self._judged = False

    async def create(self, client: Client) -> None:
        """Make the group."""
        await client.reader_groups.create(GROUP, STREAM, automatic_checkpoint=_CHECKPOINT_SECONDS)

    def work(self, client: Client) -> dict[str, Coroutine[Any, Any, None]]:
        """See `Part`."""
        return {f"group {number} reader": self._replace(client, number) for number in range(_READERS)}

    def check(self) -> list[Violation]:
        """See `Part`."""
        return self._violations

    async def scan(self, client: Client) -> None:
        """Every stored event must be processed once."""
        if self._judged:
            return
        self._judged = True
        stored = self._elastic.stored
        while len(self._done) < len(stored):
            await asyncio.sleep(0.05)
        for kind, wrong in (
            ("group-duplicate", [event for event, count in self._done.items() if count > 1]),
            ("group-lost", [event for event in stored if event not in self._done]),
            ("group-phantom", [event for event in self._done if event not in stored]),
        ):
            if wrong:
                self._violations.append(Violation(kind, f"{len(wrong)} of {len(stored)}: {sorted(wrong)[:_SHOWN]}"))

    async def _replace(self, client: Client, number: int) -> None:
        """One reader after the other, until cancelled."""
        life = 0
        try:
            while True:
                life += 1
                name = f"reader-{number}-{life}"
                position = await self._live(name)
                self.kills += 1
                await self._lost(name, position)
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()

    async def _live(self, name: str) -> Position | None:
        """Run a reader from its start until it is killed; return the last position it reported."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.group_process", self._elastic.address, GROUP, name,
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, limit=1 << 26,
        )  # fmt: skip
        self._processes.add(process)
        reports = Reports()
        await self._take(process, reports)  # it has joined, however long that takes while the node is down
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds()):
                while await self._take(process, reports):
                    for number in range(_READERS):  # the group as a whole: one of them may own no segment for a while
                        self.pulse.steps[f"group {number} reader"] += 1
        assert process.returncode is None, f"{name} ended by itself: {process.returncode}"
        process.kill()
        while await self._take(process, reports):  # what is in the pipe was processed
            pass
        await process.wait()
        self._processes.discard(process)
        return reports.position

    def _seconds(self) -> float:
        """The lifetime of a reader; rarely short, since each is a new process."""
        return self._rng.choice((3.0, 10.0, 40.0)) * (0.5 + self._rng.random())

    async def _take(self, process: asyncio.subprocess.Process, reports: Reports) -> bool:
        """One line; False at the end."""
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if not line.endswith("\n"):
            await asyncio.sleep(0.1)  # its exit code is available soon
            return False
        found = reports.take(line.strip())
        self._violations += found
        self._done.update(reports.done)
        reports.done.clear()
        return True

    async def _lost(self, name: str, position: Position | None) -> None:
        """Report the position to the group, for the other readers."""
        while True:
            try:
                async with await connect(self._elastic.address) as client:
                    await (await client.reader_groups.open(GROUP)).reader_offline(name, position)
                return
            except Unavailable:
                await asyncio.sleep(0.2)


class Reports:
    """The reports of one reader."""

    def __init__(self) -> None:
        self.position: Position | None = None
        self.done: list[tuple[int, int]] = []
        self._rows: list[tuple[int, int]] = []
        self._last: dict[int, int] = {}

    def take(self, line: str) -> list[Violation]:
        """Take a line; return what is wrong with it."""
        what, _, rest = line.partition(" ")
        if what == "got":
            sequence, number = map(int, rest.split())
            self._rows.append((sequence, number))
            return []
        if what == "joined":
            return []
        assert what == "at", line
        wrong = []
        for sequence, number in self._rows:
            if number <= self._last.get(sequence, 0):
                wrong.append(Violation("group-order", f"sequence {sequence}: {number} after {self._last[sequence]}"))
            self._last[sequence] = number
        self.done, self._rows = self._rows, []
        self.position = Position.from_bytes(bytes.fromhex(rest))
        return wrong[:_SHOWN]
