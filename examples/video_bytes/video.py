"""A camera records into a byte stream; a player follows it and seeks in it, and old footage is truncated.

    python examples/video_bytes/video.py --megabytes 256 studio/camera

Both sides hold a few megabytes, however long the recording is.  Frames are made up: a frame can be computed from its
number, so the player can check that it got the right bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import sarit

FRAME_BYTES: Final = 64 * 1024
FRAMES_PER_MEGABYTE: Final = (1 << 20) // FRAME_BYTES


def frame(number: int) -> bytes:
    """The frame of a number."""
    return hashlib.shake_128(number.to_bytes(8, "big")).digest(64) * (FRAME_BYTES // 64)


def record(client: sarit.Client, stream: str, frames: int) -> None:
    """Write frames, then seal the stream, also after an error: the recording is over."""
    try:
        with client.byte_writer(stream) as writer:
            for number in range(frames):
                writer.write(frame(number))  # blocks while the store is slower than the camera
    finally:
        client.seal_stream(stream)


def play(client: sarit.Client, stream: str) -> int:
    """Follow the recording to its end; the number of frames."""
    number = 0
    with client.byte_reader(stream) as reader:
        while shown := reader.read_exactly(FRAME_BYTES):
            if shown != frame(number):
                raise SystemExit(f"frame {number} is not what was recorded")
            number += 1
    return number


def jump(client: sarit.Client, stream: str, frames: int, times: int, first: int = 0) -> None:
    """Seek to some frames at random positions and check them."""
    rng = random.Random(1)
    with client.byte_reader(stream) as reader:
        for _ in range(times):
            number = rng.randrange(first, frames)
            reader.seek(number * FRAME_BYTES)
            if reader.read_exactly(FRAME_BYTES) != frame(number):
                raise SystemExit(f"frame {number} is not what was recorded")


def drop(client: sarit.Client, stream: str, frames: int) -> int:
    """Forget the first frames; the oldest frame that is left."""
    with client.byte_writer(stream) as writer:
        writer.truncate(frames * FRAME_BYTES)
        return writer.head_offset() // FRAME_BYTES


def run(client: sarit.Client, stream: str, megabytes: int) -> None:
    """Record and play at the same time, then jump, drop the first half, and jump in the rest."""
    client.create_scope(stream.partition("/")[0])
    client.create_stream(stream)
    frames = megabytes * FRAMES_PER_MEGABYTE
    with ThreadPoolExecutor(1) as beside:
        camera = beside.submit(record, client, stream, frames)
        played = play(client, stream)
        camera.result()
    if played != frames:
        raise SystemExit(f"{frames} frames were recorded, and {played} played")
    print(f"{played} frames played while they were recorded")
    jump(client, stream, frames, times=20)
    oldest = drop(client, stream, frames // 2)
    jump(client, stream, frames, times=20, first=oldest)
    try:
        client.byte_reader(stream).read()
    except sarit.Truncated as error:
        print(f"the first {error.start_offset // FRAME_BYTES} frames are gone")
    with client.byte_reader(stream, skip_truncated=True) as reader:
        if reader.read_exactly(FRAME_BYTES) != frame(oldest):
            raise SystemExit("the oldest frame is not what was recorded")


def main() -> None:
    """Record into a stream of your choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controller", help="HOST:PORT; without it SARIT_CONTROLLER, or the context in use")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("stream")
    options = parser.parse_args()
    with sarit.connect(options.controller, wait=60) as client:
        run(client, options.stream, options.megabytes)


if __name__ == "__main__":
    main()
