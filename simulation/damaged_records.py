"""The last phase of some seeds: bits flip in records of the index.

Whatever is flipped, each segment is served as before or refused as Corrupt, and every container serves: also when the
damaged segments are deleted, and after a restart.  Values of the container itself (`m`) are left out: without its
checkpoint a container does not open.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, NotFound, SaritError
from sarit.index import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.store.store import SegmentStore
    from simulation.cluster import Cluster

_SHARE = 0.4  # of the seeds
_MAX_FLIPS = 8
_READ_BYTES = 4096
_WAIT_SECONDS = 10.0


async def flip_records(cluster: Cluster, segments: Sequence[str]) -> None:
    """Flip bits, and check what the node serves afterwards; it runs, and all else has been checked."""
    rng = cluster.rng("damage")
    if rng.random() >= _SHARE:
        return
    cluster.trace.note("phase", "damaged records")
    before = await _on_node(cluster, segments)
    await cluster.shut_down()
    for container in range(cluster.options.containers):
        rows = [key for key in cluster.indexes.snapshot(container) if key[:1] != keys.META]
        owned = _rows_of(cluster, container, segments)
        drawn = [*rng.sample(owned, min(len(owned), _MAX_FLIPS)), *rng.sample(rows, min(len(rows), rng.randint(0, 4)))]
        for key in dict.fromkeys(drawn):
            cluster.trace.note("fault", f"a bit flips in the record of {keys.describe(key)}")
            cluster.trace.probe("index_record_damaged")
            cluster.indexes.flip(container, key, rng.randrange(1 << 16))
    if not await cluster.start():
        return
    after = await _on_node(cluster, segments)
    for name in segments:
        if not isinstance(after[name], Corrupt) and after[name] != before[name]:
            cluster.failures.append(f"damage: {name} was {before[name]!r:.200}, and is served as {after[name]!r:.200}")
    await _on_node(cluster, segments, delete=True)
    await asyncio.sleep(_WAIT_SECONDS)
    _require_all(cluster, "after deletions")
    cluster.end(power=False)
    if await cluster.start():
        await asyncio.sleep(_WAIT_SECONDS)
        _require_all(cluster, "after a restart")


def _rows_of(cluster: Cluster, container: int, segments: Sequence[str]) -> list[bytes]:
    """The keys of the records of these segments, and of their inlined bytes: no other checksum covers them."""
    rows = cluster.indexes.snapshot(container)
    ids = [rows[key] for name in segments if (key := keys.name_key(name)) in rows]
    kinds = (keys.SEGMENT, keys.INLINED)
    return [key for key in rows if key[:1] in kinds and key[1:9] in ids]


def _require_all(cluster: Cluster, when: str) -> None:
    serving = 0 if cluster.node is None else len(cluster.node.store.serving())
    if serving != cluster.options.containers:
        cluster.failures.append(f"damage: {serving} of {cluster.options.containers} containers serve {when}")


async def _on_node(cluster: Cluster, segments: Sequence[str], *, delete: bool = False) -> dict[str, bytes | SaritError]:
    """What the node serves of each segment; or the outcomes of their deletions."""
    node, process = cluster.node, cluster.process
    assert node is not None
    assert process is not None

    async def call() -> dict[str, bytes | SaritError]:
        served: dict[str, bytes | SaritError] = {}
        for name in segments:
            try:
                served[name] = await (_delete(node.store, name) if delete else _bytes(node.store, name))
            except NotFound:
                served[name] = b"does not exist"
            except SaritError as error:
                served[name] = error
        return served

    return await process.spawn(call(), "damage")


async def _delete(store: SegmentStore, name: str) -> bytes:
    await store.container(name).delete(name)
    return b""


async def _bytes(store: SegmentStore, name: str) -> bytes:
    reads, out = store.reads(name), b""
    segment = await reads.find(name)
    at = segment.start
    while True:
        found = reads.from_memory(segment, at, _READ_BYTES) or await reads.from_chunks(segment, at, _READ_BYTES)
        if not found.length:
            return out + b"%d %d %d" % (segment.start, segment.sealed, segment.events)
        out += b"".join(bytes(part) for part in found.parts)
        at += found.length
