"""Clients of segment attributes, and of a segment under conditional appends that is sealed at the end.

Every call is recorded for the search of `checkers/register.py`.  When the reply to a conditional append is lost, the
next SetupAppend tells its outcome: the store knows the writer's last event number.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final

from checkers import register
from checkers.register import UNKNOWN, Call, Cell, SealableLog, chained
from sarit.core.errors import Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as wire
from simulation.actors.appends import Appends
from simulation.actors.links import Link, SentAwayError
from simulation.actors.readers import read_command
from simulation.events import HEAD_BYTES, body, framed
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from checkers.log import Violation
    from simulation.cluster import Cluster

LOG: Final = "sim/conditional/0.#epoch.0"
CELLS: Final = "sim/cells/0.#epoch.0"
_ATTRIBUTES: Final = tuple(number.to_bytes(16, "big") for number in (7, 8))
_CALLS_PER_CLIENT: Final = 30


class Registers:
    """All clients, and their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.calls: list[Call] = []
        self.segments = [LOG, CELLS] if cluster.options.register_clients else []

    def start(self) -> list[asyncio.Task[Any]]:
        """Tasks that end by themselves."""
        cluster, clients = self.cluster, self.cluster.options.register_clients
        work = [cluster.spawn(CellClient(self, n).run(), f"cells {n}") for n in range(clients)]
        work += [cluster.spawn(LogClient(self, n).run(), f"conditional {n}") for n in range(clients)]
        return work

    def check(self) -> list[Violation]:
        """Histories that no order explains."""
        return register.check(self.calls, _model)

    async def read_again(self, name: str) -> None:
        """Values, length and content after the faults, as calls."""
        if not self.segments:
            return
        link = Link(self.cluster, self.cluster.rng(f"registers {name}"), f"registers {name}")
        for attribute in _ATTRIBUTES:
            await link.retry_forever(partial(get, self, link, "after", attribute))
        begun = now()
        info = await link.retry_forever(lambda: show(self, link, "after"))
        data = b""
        while len(data) < info.write_offset:
            answer = await link.retry_forever(partial(link.ask, read_command(LOG, len(data), 1 << 20)))
            if not isinstance(answer, wire.SegmentRead) or not answer.data:
                self.cluster.failures.append(f"vanished: {LOG} at {len(data)} of {info.write_offset}: {answer}")
                break
            data += bytes(answer.data)
        self.record("after", LOG, ("read",), (len(data), _chain(data)), begun)
        link.drop()

    def record(self, process: str, on: Hashable, action: tuple[Any, ...], answer: Any, begun: float) -> None:
        """Record a call that ended now, or whose outcome stays unknown."""
        self.calls.append(Call(process, on, action, answer, begun, inf if answer is UNKNOWN else now()))


def _model(on: Hashable, _: Sequence[Call]) -> register.Model:
    return SealableLog() if on == LOG else Cell(NULL_ATTRIBUTE_VALUE)


def _chain(data: bytes) -> bytes:
    """The chained hash over the events in `data`, each of which was one append."""
    chain, at = register.NOTHING, 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        chain = chained(chain, data[at:end])
        at = max(end, at + HEAD_BYTES)
    return chain


async def get(registers: Registers, link: Link, process: str, attribute: bytes) -> int:
    """Ask for a value.  Raises Unavailable."""
    begun = now()
    answer = await link.ask(lambda request: wire.GetSegmentAttribute(request, CELLS, attribute, ""))
    if not isinstance(answer, wire.SegmentAttribute):
        raise AssertionError(f"attribute of {CELLS}: {answer}")
    registers.record(process, attribute, ("get",), answer.value, begun)
    return answer.value


async def show(registers: Registers, link: Link, process: str) -> wire.StreamSegmentInfo:
    """Ask for length and seal.  Raises Unavailable."""
    begun = now()
    answer = await link.ask(lambda request: wire.GetStreamSegmentInfo(request, LOG, ""))
    if not isinstance(answer, wire.StreamSegmentInfo):
        raise AssertionError(f"info of {LOG}: {answer}")
    registers.record(process, LOG, ("info",), (answer.write_offset, answer.is_sealed), begun)
    return answer


class CellClient:
    """Compare-and-set of attributes."""

    def __init__(self, registers: Registers, number: int) -> None:
        self._registers = registers
        self._name = f"cells {number}"
        self._rng = registers.cluster.rng(self._name)
        self._link = Link(registers.cluster, self._rng, self._name)
        self._values = count(1000 * (number + 1))

    async def run(self) -> None:
        """A fixed number of calls."""
        think = self._registers.cluster.options.think_seconds
        for _ in range(_CALLS_PER_CLIENT):
            await asyncio.sleep(self._rng.random() * 4 * think)
            attribute = self._rng.choice(_ATTRIBUTES)
            try:
                known = await get(self._registers, self._link, self._name, attribute)
                if self._rng.random() < 0.7:
                    await self._set(attribute, known)
            except Unavailable:
                continue

    async def _set(self, attribute: bytes, expected: int) -> None:
        value, begun = next(self._values), now()
        done: bool | str | None = UNKNOWN
        try:
            answer = await self._link.ask(
                lambda request: wire.UpdateSegmentAttribute(request, CELLS, attribute, value, expected, "")
            )
            if not isinstance(answer, wire.SegmentAttributeUpdated):
                raise AssertionError(f"update of {CELLS}: {answer}")
            done = answer.success
            if not done:
                self._registers.cluster.trace.probe("attribute_conflict")
        except SentAwayError:  # no call: no history may need it
            done = None
            raise
        finally:
            if done is not None:
                self._registers.record(self._name, attribute, ("set", expected, value), done, begun)


class LogClient:
    """Appends on condition of a length; one client may also seal."""

    def __init__(self, registers: Registers, number: int) -> None:
        self._registers = registers
        self._name = f"conditional {number}"
        self._rng = registers.cluster.rng(self._name)
        self._link = Link(registers.cluster, self._rng, self._name)
        self._writer = 900 + number
        self._appends = Appends(self._link, self._writer.to_bytes(16, "big"), LOG)
        self._seals = number == 0 and self._rng.random() < 0.5
        self._event = 0
        self._ready = False

    async def run(self) -> None:
        """A fixed number of calls."""
        cluster = self._registers.cluster
        for left in reversed(range(_CALLS_PER_CLIENT)):
            await asyncio.sleep(self._rng.random() * 4 * cluster.options.think_seconds)
            try:
                info = await show(self._registers, self._link, self._name)
                if self._seals and left == _CALLS_PER_CLIENT // 4:
                    await self._seal()
                if self._rng.random() < 0.8:
                    await self._append(info.write_offset)
            except Unavailable:
                self._ready = False

    async def _seal(self) -> None:
        begun, done = now(), UNKNOWN
        try:
            answer = await self._link.ask(lambda request: wire.SealSegment(request, LOG, ""))
            if not isinstance(answer, wire.SegmentSealed):
                raise AssertionError(f"seal of {LOG}: {answer}")
            done = "sealed"
            self._registers.cluster.trace.probe("sealed")
        finally:
            self._registers.record(self._name, LOG, ("seal",), done, begun)

    async def _append(self, expected: int) -> None:
        if not self._ready:
            await self._appends.set_up()
            self._ready = True
        self._event += 1
        data = framed(body(self._writer, self._event, self._rng.randrange(200)))
        begun = now()
        outcome: Any = UNKNOWN
        try:
            outcome = self._outcome(await self._appends.conditional(data, self._event, expected))
        except Unavailable:
            self._ready = False
            outcome = await self._outcome_after_lost_reply(self._event)
        finally:
            if outcome is not None:
                self._registers.record(self._name, LOG, ("append", expected, data), outcome, begun)

    def _outcome(self, answer: Any) -> Any:
        if isinstance(answer, wire.DataAppended):
            return True
        if isinstance(answer, wire.ConditionalCheckFailed):
            self._registers.cluster.trace.probe("conditional_append_refused")
            return False
        if isinstance(answer, wire.SegmentIsSealed):
            self._ready = False
            return SealableLog.SEALED
        raise AssertionError(f"conditional append to {LOG}: {answer}")

    async def _outcome_after_lost_reply(self, number: int) -> bool | None:
        """Whether an append whose reply was lost was stored; None when it was not, for any reason."""
        while True:
            try:
                last = await self._appends.set_up()
            except Unavailable:
                await asyncio.sleep(0.02 + 0.05 * self._rng.random())
                continue
            self._ready = True
            if last is None:
                raise AssertionError(f"{LOG} is gone")
            return True if last >= number else None
