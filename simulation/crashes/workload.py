"""Operations on one container; the model records each when it is submitted and when it is acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.tables import Tables
from sarit.store.container.writer_session import WriterSession
from sarit.wire.frames import Append
from sarit.wire.limits import NO_VERSION
from simulation.crashes.model import ModelSegment

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sarit.store.container.container import Container
    from simulation.crashes.model import Model

WRITER: Final = b"w" * 16
CELL: Final = b"c" * 16
ATTRIBUTES: Final = [WRITER, CELL]
KEYS: Final = [b"key %d" % number for number in range(4)]
SEGMENTS: Final = tuple(f"a/b/{number}.#epoch.0" for number in range(3))
TABLE: Final = "a/table"
_STEPS: Final = 30


class _Replies:
    """Forwards acknowledgements of appends to the model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._numbers: dict[int, int] = {}
        self.left = 0
        self.done = asyncio.Event()

    def expect(self, event: int, operation: int) -> None:
        self._numbers[event] = operation
        self.left += 1
        self.done.clear()

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        self._model.ack(self._numbers.pop(append.last_event_number))
        self.left -= 1
        if not self.left:
            self.done.set()

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        raise AssertionError(f"refused: {error}")

    def segment_missing(self, session: WriterSession) -> None:
        session.close()

    def moved(self, session: WriterSession) -> None:
        """Never in this load."""


class Workload:
    """A number of drawn steps on a container."""

    def __init__(self, container: Container, model: Model, rng: random.Random, life: int) -> None:
        self._container = container
        self._tables = Tables(container)
        self._model = model
        self._rng = rng
        self._life = life
        self._merges = 0

    async def run(self) -> None:
        """Execute all steps; do not wait for the last burst."""
        for name in (*SEGMENTS, TABLE):
            await self._create(name)
        steps = [self._burst] * 8 + [self._attribute, self._truncate, self._merge, self._table, self._table]
        for _ in range(_STEPS):
            await self._rng.choice([*steps, self._renew])()
            if self._rng.random() < 0.4:
                await asyncio.sleep(self._rng.random() * 0.03)
        await self._burst(wait=False)

    async def _execute(self, change: Callable[[dict[str, ModelSegment]], Any], call: Any) -> None:
        number = self._model.submit(change)
        await call()
        self._model.ack(number)

    def _open(self) -> str | None:
        """A segment that takes appends."""
        names = [name for name in SEGMENTS if not self._model.segments[name].sealed]
        return self._rng.choice(names) if names else None

    async def _create(self, name: str) -> None:
        if name in self._model.segments:
            return
        if name == TABLE:
            await self._execute(
                lambda segments: segments.__setitem__(name, ModelSegment(table=True)),
                lambda: self._tables.create(name, 0),
            )
        else:
            await self._execute(
                lambda segments: segments.__setitem__(name, ModelSegment()), lambda: self._container.create(name)
            )

    async def _burst(self, name: str | None = None, wait: bool = True) -> None:
        name = name or self._open()
        if name is None:
            return
        replies = _Replies(self._model)
        session = WriterSession(WRITER, replies)
        await self._container.set_up_writer(name, session)
        last = 0 if session.last == NULL_ATTRIBUTE_VALUE else session.last
        assert last == self._model.segments[name].attributes.get(WRITER, 0), f"{name}: set-up reports {last}"
        for event in range(last + 1, last + 1 + self._rng.choice((1, 1, 2, 4))):
            data = self._rng.randbytes(self._rng.choice((10, 100, 700, 2000)))

            def change(segments: dict[str, ModelSegment], data: bytes = data, event: int = event) -> None:
                segment = segments[name]
                segment.data += data
                segment.attributes[WRITER] = event

            replies.expect(event, self._model.submit(change))
            session.append(Append(WRITER, [data], len(data), 1, event, 0))
        if wait:
            await replies.done.wait()
            session.close()

    async def _attribute(self) -> None:
        name, value = self._rng.choice(SEGMENTS), self._rng.randrange(1 << 40)
        known = self._model.segments[name].attributes.get(CELL, NULL_ATTRIBUTE_VALUE)

        async def call() -> None:
            assert await self._container.update_attribute(name, CELL, value, known), f"{name} does not hold {known}"

        await self._execute(lambda segments: segments[name].attributes.__setitem__(CELL, value), call)

    async def _truncate(self) -> None:
        name = self._rng.choice(SEGMENTS)
        segment = self._model.segments[name]
        offset = self._rng.randint(segment.start, len(segment.data))
        await self._execute(
            lambda segments: segments.__setitem__(name, replace(segments[name], start=offset)),
            lambda: self._container.truncate(name, offset),
        )

    async def _renew(self) -> None:
        """Seal a segment, or delete a sealed one and create it again."""
        name = self._rng.choice(SEGMENTS)
        if not self._model.segments[name].sealed:
            await self._execute(
                lambda segments: segments.__setitem__(name, replace(segments[name], sealed=True)),
                lambda: self._container.seal(name),
            )
            return
        await self._execute(lambda segments: segments.pop(name), lambda: self._container.delete(name))
        await self._create(name)

    async def _merge(self) -> None:
        target = self._open()
        if target is None:
            return
        self._merges += 1
        source = f"{target}#transaction.{self._life:016x}{self._merges:016x}"
        await self._create(source)
        await self._burst(source)
        if self._rng.random() < 0.5:
            await asyncio.sleep(0.05)  # so that it is flushed before it is merged

        def change(segments: dict[str, ModelSegment]) -> None:
            segments[target].data += segments.pop(source).data

        await self._execute(change, lambda: self._container.merge(target, source))

    async def _table(self) -> None:
        wanted = self._rng.sample(KEYS, self._rng.choice((1, 2, 3)))
        values = {key: None if self._rng.random() < 0.2 else self._rng.randbytes(20) for key in wanted}

        def change(segments: dict[str, ModelSegment]) -> None:
            for key, value in values.items():
                segments[TABLE].entries.pop(key, None)
                if value is not None:
                    segments[TABLE].entries[key] = value

        changes = [(key, value, NO_VERSION) for key, value in values.items()]
        await self._execute(change, lambda: self._tables.update(TABLE, changes))
