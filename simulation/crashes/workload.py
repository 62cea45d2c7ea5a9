"""Operations on one container; the model records each when it is submitted and when it is acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Conflict
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.offset_appends import append_in_order
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
# A copy of another installation's segment, which begins at one of these offsets, as tables do.
MIRROR: Final = "a/c/0.#epoch.0"
BEGINNINGS: Final = (0, 700, 1 << 48)
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
        for name in (*SEGMENTS, TABLE, MIRROR):
            await self._create(name)
        steps = [self._burst] * 10 + [self._attribute, self._truncate, self._merge, self._table, self._table]
        steps += [self._copy, self._stage, self._renew_mirror]
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
        begin, mirror = self._rng.choice(BEGINNINGS), self._rng.random() < 0.5
        if name == TABLE:
            await self._execute(
                lambda segments: segments.__setitem__(
                    name, ModelSegment(True, start=begin, begin=begin, mirror=mirror)
                ),
                lambda: self._tables.create(name, 0, position=begin, mirror=mirror),
            )
        elif name == MIRROR:
            await self._create_mirror(name, begin)
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

    async def _create_mirror(self, name: str, begin: int) -> None:
        new = ModelSegment(start=begin, begin=begin, mirror=True)
        await self._execute(
            lambda segments: segments.__setitem__(name, new),
            lambda: self._container.create(name, offset=begin, mirror=True),
        )

    async def _append_at(self, name: str, count: int) -> None:
        """Some appends at offsets in one call, one of which is at a wrong one."""
        offset, writes, numbers = self._model.segments[name].length, [], []
        for _ in range(count):
            data = self._rng.randbytes(self._rng.choice((10, 700, 2000)))

            def change(segments: dict[str, ModelSegment], data: bytes = data) -> None:
                segments[name].data += data

            numbers.append(self._model.submit(change))
            writes.append((name, offset, data))
            offset += len(data)
        wrong = self._rng.randrange(count + 1)
        writes.insert(wrong, (name, offset + 1, b"wrong"))
        outcomes = await append_in_order(self._container, writes)
        refused = outcomes.pop(wrong)
        assert isinstance(refused, Conflict), refused
        del writes[wrong]
        assert outcomes == [at + len(data) for _, at, data in writes], outcomes
        for number in numbers:
            self._model.ack(number)

    async def _copy(self) -> None:
        if not self._model.segments[MIRROR].sealed:
            await self._append_at(MIRROR, self._rng.choice((1, 2, 5)))

    async def _stage(self) -> None:
        """Stage bytes, and merge them where the mirror ends."""
        if self._model.segments[MIRROR].sealed:
            return
        self._merges += 1
        source = f"{MIRROR}#transaction.{self._life:016x}{self._merges:016x}"
        await self._create_mirror(source, 0)
        await self._append_at(source, self._rng.choice((1, 3)))
        if self._rng.random() < 0.5:
            await asyncio.sleep(0.05)  # so that it is flushed before it is merged
        end = self._model.segments[MIRROR].length

        def change(segments: dict[str, ModelSegment]) -> None:
            segments[MIRROR].data += segments.pop(source).data

        async def call() -> None:
            length, durable = await self._container.begin_merge(MIRROR, source, offset=end)
            await durable
            assert length == self._model.segments[MIRROR].length

        await self._execute(change, call)

    async def _renew_mirror(self) -> None:
        """Truncate the mirror to its end, seal it, or delete it and create it again."""
        mirror = self._model.segments[MIRROR]
        if mirror.sealed:
            await self._execute(lambda segments: segments.pop(MIRROR), lambda: self._container.delete(MIRROR))
            await self._create(MIRROR)
        elif self._rng.random() < 0.5:
            await self._execute(
                lambda segments: segments.__setitem__(MIRROR, replace(segments[MIRROR], start=mirror.length)),
                lambda: self._container.truncate(MIRROR, mirror.length),
            )
        else:
            await self._execute(
                lambda segments: segments.__setitem__(MIRROR, replace(segments[MIRROR], sealed=True)),
                lambda: self._container.seal(MIRROR),
            )

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
        if self._rng.random() < 0.2:
            mirror = not self._model.segments[TABLE].mirror
            await self._execute(
                lambda segments: segments.__setitem__(TABLE, replace(segments[TABLE], mirror=mirror)),
                lambda: self._container.set_mirror(TABLE, mirror),
            )
        values = {key: None if self._rng.random() < 0.2 else self._rng.randbytes(20) for key in wanted}

        def change(segments: dict[str, ModelSegment]) -> None:
            for key, value in values.items():
                segments[TABLE].entries.pop(key, None)
                if value is not None:
                    segments[TABLE].entries[key] = value

        changes = [(key, value, NO_VERSION) for key, value in values.items()]
        await self._execute(change, lambda: self._tables.update(TABLE, changes))
