"""How fast the wire layer alone is, fed from memory: `python -m benchmarks.micro.wire_frames [SECONDS_PER_CASE]`.

Prints one JSON object.  Frames arrive in reads of 256 KiB, as a busy socket gives them.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from sarit.core.keyspace import hash_key
from sarit.wire import commands as wire
from sarit.wire.frames import AppendAssembler, FrameReader, append_block_end_header, data_appended

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES = 256 << 10
WRITER = bytes(range(16))


def _rate(seconds: float, step: Callable[[], int]) -> float:
    """Units a second; `step` returns how many units it did."""
    step()
    done, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        done += step()
    return done / elapsed


def _receiver(frame: bytes, frames: int, retained: int = 0) -> Callable[[], int]:
    """A step that receives `frames` copies of a frame, and returns their count.

    The last `retained` payloads stay alive, as in a store that has not flushed them yet."""
    raw = memoryview(frame * frames)
    reader = FrameReader()
    held: deque[object] = deque(maxlen=retained)

    def step() -> int:
        at = whole = 0
        while at < len(raw):
            buffer = reader.get_buffer(-1)
            count = min(len(buffer), READ_BYTES, len(raw) - at)
            buffer[:count] = raw[at : at + count]
            at += count
            received = reader.received(count)
            whole += len(received)
            held.extend(received)
        assert whole == frames
        return frames

    return step


def _blocks(data_bytes: int, java: bool) -> Callable[[], int]:
    """A step that assembles 1,000 appends."""
    assembler = AppendAssembler()
    data = bytes(data_bytes)
    block = wire.encode(wire.AppendBlock(WRITER, data))[8:]
    alone = wire.encode(wire.AppendBlockEnd(WRITER, len(data), data, 10, 9, 7))[8:]
    end = wire.encode(wire.AppendBlockEnd(WRITER, len(data), b"", 10, 9, 7))[8:]

    def step() -> int:
        for _ in range(1000):
            if java:
                assembler.block(block)
            assembler.block_end(end if java else alone)
        return 1000

    return step


def _repeat(call: Callable[[], object]) -> Callable[[], int]:
    def step() -> int:
        for _ in range(1000):
            call()
        return 1000

    return step


def measure(seconds: float) -> dict[str, float]:
    """Every figure by name; the unit is its last word."""
    large = struct.pack(">ii", 4, 256 << 10) + bytes(256 << 10)
    medium = struct.pack(">ii", 4, 64 << 10) + bytes(64 << 10)
    small = data_appended(WRITER, 2, 1, 7, 100)
    read = wire.encode(wire.ReadSegment("scope/stream/0.#epoch.0", 0, 1 << 20, "", 7))
    names = iter(range(1 << 60))
    figures = {
        "frames_of_256_kib_mb_per_s": _rate(seconds, _receiver(large, 64)) * len(large) / 1e6,
        "frames_of_256_kib_kept_mb_per_s": _rate(seconds, _receiver(large, 64, 512)) * len(large) / 1e6,
        "frames_of_64_kib_mb_per_s": _rate(seconds, _receiver(medium, 256)) * len(medium) / 1e6,
        "frames_of_48_bytes_per_s": _rate(seconds, _receiver(small, 20_000)),
        "appends_rust_style_per_s": _rate(seconds, _blocks(1000, java=False)),
        "appends_java_style_per_s": _rate(seconds, _blocks(1000, java=True)),
        "read_requests_decoded_per_s": _rate(seconds, _repeat(lambda: wire.decode(9, read[8:]))),
        "read_requests_encoded_per_s": _rate(
            seconds, _repeat(lambda: wire.encode(wire.ReadSegment("scope/stream/0.#epoch.0", 0, 1 << 20, "", 7)))
        ),
        "acknowledgements_encoded_per_s": _rate(seconds, _repeat(lambda: data_appended(WRITER, 2, 1, 7, 100))),
        "block_headers_made_per_s": _rate(seconds, _repeat(lambda: append_block_end_header(WRITER, 1000, 10, 9, 7))),
        "keys_hashed_per_s": _rate(seconds, _repeat(lambda: hash_key(f"key-{next(names)}"))),
    }
    return {name: round(figure) for name, figure in figures.items()}


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5), indent=2))
