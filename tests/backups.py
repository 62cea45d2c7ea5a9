"""Shared by tests of backups: what is written, what is compared, and how a command is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import sarit
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, hears_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

STREAM = "shop/orders"
SEGMENTS = 4
EVENT_BYTES = 2000
INTERRUPTED = 130


def write_orders(controller: str, count: int) -> None:
    """Events with numbers, in all segments of a new stream."""
    with sarit.connect(controller) as client:
        client.create_scope("shop")
        client.create_stream(STREAM, segments=SEGMENTS)
        with client.writer(STREAM) as writer:
            for number in range(count):
                writer.write(f"{number} ".ljust(EVENT_BYTES, "x"), key=str(number))


def contents_of(controller: str) -> dict[str, bytes]:
    """The events of each segment of the stream, in their order, one to a line."""
    with sarit.connect(controller) as client:
        stream = client.stream(STREAM)
        return {
            str(part.segment): b"\n".join(
                event for batch in stream.read_slice(part) for event in batch.column("event").to_pylist()
            )
            for part in stream.batch().slices
        }


def objects_of(place: Path) -> list[Path]:
    """What backups have copied to a directory."""
    return sorted(path for folder in ("chunks", "index") for path in (place / folder).rglob("*.chunk"))


def interrupt(
    words: list[object], how: signal.Signals, begun: Callable[[], bool], environ: Mapping[str, str] | None = None
) -> str:
    """Run a command until `begun` holds, and end it by a signal; what it printed.

    Raises AssertionError: it ended before, or otherwise than it should."""
    process = subprocess.Popen(
        [SARIT, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ,
        preexec_fn=hears_signals,
    )  # fmt: skip
    end = time.monotonic() + HANG_SECONDS
    while not begun():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(how)
    output, _ = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == (-how if how == signal.SIGKILL else INTERRUPTED), output
    return output


def same_chunks(old: Path, new: Path) -> int:
    """How many chunks there are in a directory of long-term storage that was restored.

    Raises AssertionError: one is not the chunk of that name where the backup was taken."""
    count = 0
    for path in new.rglob("c0*/*/*.chunk"):
        assert path.read_bytes() == (old / path.relative_to(new)).read_bytes(), path
        count += 1
    return count


def kept_chunk_bytes(place: Path, there: list[Path]) -> int:
    """The length of the chunks of the one backup in a place that were `there` before."""
    (manifest,) = (place / "backup").glob("manifest-*.chunk")
    pieces = [piece for each in json.loads(manifest.read_text())["content"]["containers"] for piece in each["chunks"]]
    return sum(length for name, digest, length in pieces if place / f"chunks/{name}/{digest}-{length}.chunk" in there)
