"""One life of the node of the trickle: `python -m tests.scale.trickle_life OPTIONS` (JSON).

The load runs in the node's own process, on its store: the process has the memory of the node and little more.  It
appends to each segment once a round, or reads the first bytes of each, and prints its largest resident memory (JSON).
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sarit.core.limits import MIB
from sarit.env.real import real_env
from sarit.env.real_limits import machine_memory
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.scale.node import held_by
from tests.unit.store.harness import Writer

SAMPLE_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 0.002
_AT_ONCE: Final = 1000
_READ_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Life:
    """What to do; `rounds` are of appends."""

    directory: str
    segments: int
    first_round: int
    rounds: int
    event_bytes: int
    memory_bytes: int
    containers: int
    read: bool


def segment_name(number: int) -> str:
    """The name of a segment of the trickle."""
    return f"trickle/s{number}/0.#epoch.0"


async def _append_rounds(store: Any, life: Life) -> None:
    writers = [Writer(store, segment_name(number)) for number in range(life.segments)]

    async def set_up(writer: Writer) -> None:
        if not life.first_round:
            await store.container(writer.segment).create(writer.segment)
        await writer.set_up()

    for at in range(0, life.segments, _AT_ONCE):
        await asyncio.gather(*map(set_up, writers[at : at + _AT_ONCE]))
    for number in range(life.first_round + 1, life.first_round + life.rounds + 1):
        for at in range(0, life.segments, _AT_ONCE):
            batch = writers[at : at + _AT_ONCE]
            for index, writer in enumerate(batch, at):
                writer.append(index.to_bytes(4, "big") * (life.event_bytes // 4), number)
            # As a connection does, whose unacknowledged appends are bounded.
            for writer in batch:
                while len(writer.replies.acknowledgements) < number - life.first_round:
                    await asyncio.sleep(_POLL_SECONDS)
    for writer in writers:
        assert not writer.replies.errors, writer.replies.errors
        writer.session.close()


async def _read_all_heads(store: Any, life: Life) -> None:
    for number in range(life.segments):
        reads = store.reads(segment_name(number))
        segment = await reads.find(segment_name(number))
        found = reads.from_memory(segment, 0, _READ_BYTES) or await reads.from_chunks(segment, 0, _READ_BYTES)
        assert b"".join(map(bytes, found.parts)) == number.to_bytes(4, "big") * (_READ_BYTES // 4), segment


async def live(life: Life) -> dict[str, float]:
    """Run the life; what it took."""
    config = NodeConfig(
        life.directory, controller_port=0, store_port=0, containers=life.containers, memory_bytes=life.memory_bytes
    )
    node = await open_node(config.validated().on_machine(machine_memory()), real_env())
    await node.start()
    peak = 0

    async def sample() -> None:
        nonlocal peak
        while True:
            peak = max(peak, held_by("self").memory_bytes)
            await asyncio.sleep(SAMPLE_SECONDS)

    sampling = asyncio.ensure_future(sample())
    began = asyncio.get_running_loop().time()
    if life.read:
        await _read_all_heads(node.store, life)
    await _append_rounds(node.store, life)
    seconds = asyncio.get_running_loop().time() - began
    sampling.cancel()
    joined = sum(opened.flusher.compactor.joined for opened in node.store.opened())
    await node.stop()
    return {"peak_mib": peak / MIB, "seconds": seconds, "joined": joined}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(live(Life(**json.loads(sys.argv[1]))))))
