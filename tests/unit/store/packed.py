"""A store that writes packs, with checkpoints that tests make by hand."""

from dataclasses import replace

from sarit.index import keys
from sarit.storage.layout import load_chunk_extent
from sarit.storage.names import is_pack
from sarit.store.tiering.checkpoint import FlushLimits
from tests.unit.store.harness import SMALL, World, Writer, read_all

NAMES = [f"s/t/{number}.#epoch.0" for number in range(6)]
BY_HAND = FlushLimits(interval_seconds=1000, inline_below_bytes=1, small_extent_bytes=600, packs=True)


class Packed:
    """A store whose checkpoints are made by hand, and a writer for each segment."""

    def __init__(self, limits: FlushLimits = BY_HAND) -> None:
        self.world = World(replace(SMALL, containers=1, flush=limits))
        self.expected = {name: b"" for name in NAMES}
        self.numbers = dict.fromkeys(NAMES, 0)

    async def start(self) -> "Packed":
        self.store = await self.world.start()
        for name in NAMES:
            await self.container.create(name)
        await self.set_up()
        return self

    async def set_up(self) -> None:
        self.writers = {name: Writer(self.store, name) for name in NAMES}
        for writer in self.writers.values():
            await writer.set_up()

    @property
    def container(self):
        return self.store.opened()[0].container

    @property
    def flusher(self):
        return self.store.opened()[0].flusher

    async def append(self, size: int, names=NAMES) -> None:
        for name in names:
            self.numbers[name] += 1
            data = bytes([65 + NAMES.index(name) + self.numbers[name] % 7]) * size
            self.expected[name] += data
            self.writers[name].append(data, self.numbers[name])
        for name in names:
            await self.writers[name].wait_for_replies()

    async def flush(self) -> None:
        await self.flusher.checkpoint()
        await self.flusher.garbage.collect()

    def rows(self, kind: bytes) -> dict[bytes, bytes]:
        return {key: value for key, value in self.world.indexes.snapshot(0).items() if key[:1] == kind}

    async def check(self, names=NAMES) -> None:
        for name in names:
            segment = await self.container.metadata.require(name)
            assert await read_all(self.store, name) == self.expected[name][segment.start :], name
        self.check_references()

    def check_references(self) -> None:
        """Each object is named by an extent, and each piece that an extent names has its record, and no other."""
        extents = [load_chunk_extent(keys.number_of(key), value) for key, value in self.rows(keys.EXTENT).items()]
        assert {one.reference for one in extents if is_pack(one.chunk)} == {
            keys.parse_piece_key(key) for key in self.rows(keys.PIECE)
        }
        assert set(self.world.storage.chunks) == {one.chunk for one in extents if one.chunk}
