"""An index that is made by hand, as an indexer stores it, on a controller in memory: for tests of what answers."""

from __future__ import annotations

import json
from types import SimpleNamespace

from crc32c import crc32c

from sarit.controller.jobs import JobKey
from sarit.core.cuts import StreamCut
from sarit.core.names import SegmentId
from sarit.env.real import real_env
from sarit.search.document_maker import DocumentMaker
from sarit.search.documents import Place
from sarit.search.field_values import order_key, time_of_key
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.memory_shards import MemoryShards
from sarit.search.memory_world import MemoryBlobs
from sarit.search.ports import Indexed
from sarit.search.settings import SEARCH_JOB, SEARCH_KIND, SearchSettings
from sarit.search.state import IndexState, Shard, StoredFile, encode_shards
from tests.unit.controller.world import STREAM

MAPPING = Mapping((Field("user", Kind.KEYWORD), Field("text", Kind.TEXT), Field("n", Kind.NUMBER)))


FIRST = SegmentId(0, 0)


def event(text: str, user: str = "alice", n: int = 0) -> bytes:
    return json.dumps({"text": text, "user": user, "n": n}).encode()


class HandMadeIndex:
    """Grows shards by hand.  `events`: all that were ever added, each (time, segment, offset, document)."""

    def __init__(self, path, segments, engine=None) -> None:
        self.segments = segments
        self.engine = engine or MemoryShards(real_env().files)
        self.blobs = MemoryBlobs()
        self.path = path
        self.events: list[tuple[int, int, int, dict]] = []
        self._ends: dict[SegmentId, int] = {SegmentId(0, 0): 0}
        self._writer = None
        self._files: dict[str, StoredFile] = {}
        self._shard: list[Indexed] = []
        self._shards = 0
        self._closed: list[Shard] = []
        self._growing: Shard | None = None
        self._claim = None
        self.state = IndexState(stream_id="1")

    def site(self, name: str):
        return SimpleNamespace(blobs=self.blobs, engine=lambda: self.engine, directory=lambda _: self.path / name)

    async def create(self, controller, settings: SearchSettings | None = None) -> None:
        key = JobKey(SEARCH_KIND, STREAM, SEARCH_JOB)
        await controller.jobs.create(key, (settings or SearchSettings()).encode())
        self._claim = await controller.jobs.claim(await controller.jobs.find(key), "h:1")

    def begin(self, segments) -> None:
        self._ends = dict.fromkeys(segments, 0)

    def replace(self, old, *new) -> None:
        """Go on in other segments, as after a scale."""
        del self._ends[old]
        self._ends |= dict.fromkeys(new, 0)

    def add(self, time_ms: int, found: bytes, segment: SegmentId = FIRST) -> None:
        self.segments.append(STREAM.segment(segment), found.hex(), 8 + len(found))
        offset = self._ends[segment]
        self._ends[segment] = offset + 8 + len(found)
        self.events.append((time_ms, segment.packed, offset, json.loads(found)))
        key = order_key(time_ms, len(self.events))
        document = DocumentMaker(MAPPING).document(found)
        self._shard.append(Indexed(Place(segment.packed, offset), key, document))
        if self._writer is None:
            self._shards += 1
            self._writer = self.engine.create(self.path / f"writer{self._shards}", MAPPING)
        self._writer.add(self._shard[-1:])

    @property
    def cut(self) -> StreamCut:
        return StreamCut(STREAM, dict(self._ends))

    async def commit(self, *, close: bool = False) -> StreamCut:
        """Store what was added; `close`: in a shard that grows no more."""
        if self._writer is not None:
            names, contents = self._writer.commit(frozenset(self._files))
            blob = f"1/{self.state.commits}"
            for name, content in contents.items():
                at = await self.blobs.append(blob, [bytes(content)])
                self._files[name] = StoredFile(name, blob, at, len(content), crc32c(bytes(content)))
            times = [time_of_key(one.order_key) for one in self._shard]
            files = tuple(self._files[name] for name in names)
            self._growing = Shard(
                f"shard{self._shards}", MAPPING, len(times), min(times), max(times), self.cut, files, close, 0
            )
        closed = self.state.closed
        if close:
            self._writer.close()
            self._writer, self._files, self._shard = None, {}, []
            self._closed.append(self._growing)
            self._growing = None
            content = encode_shards(self._closed)
            blob = f"1/list{self.state.commits}"
            await self.blobs.append(blob, [content])
            closed = StoredFile("shards", blob, 0, len(content), crc32c(content))
        self.state = IndexState(
            stream_id="1", cut=self.cut, growing=self._growing, closed=closed, events=len(self.events),
            commits=self.state.commits + 1, committed_ms=12345,
        )  # fmt: skip
        await self._claim.save(self.state.encode())
        return self.cut
