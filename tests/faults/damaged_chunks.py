"""A node whose long-term storage is damaged: two streams of the same length, and the chunk of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sarit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nodes import RunningNode

SCOPE = "storage"
DAMAGED, WHOLE = f"{SCOPE}/damaged", f"{SCOPE}/whole"
EVENTS, EVENT_BYTES = 48, 1 << 16
KINDS = ("flipped", "missing", "short")
GOOD_EVENTS = {"flipped": 20, "missing": 0, "short": 20}  # at the head of DAMAGED, at least; see `damage`


def event(stream: str, number: int) -> bytes:
    """An event that is found in its chunk."""
    head = b"%s event %06d;" % (stream.encode(), number)
    return head + bytes(EVENT_BYTES - len(head))


def write_both(node: RunningNode) -> None:
    """Write both streams, one segment each."""
    with sarit.connect(node.controller) as client:
        client.create_scope(SCOPE)
        for stream in (DAMAGED, WHOLE):
            client.create_stream(stream)
            with client.writer(stream) as writer:
                for number in range(EVENTS):
                    writer.write(event(stream, number), key="k")


def chunks_of(data: Path, stream: str) -> Iterator[Path]:
    """The chunk files that hold events of a stream, in order."""
    for path in sorted((data / "chunks").rglob("*.chunk")):
        if f"{stream} event ".encode() in path.read_bytes():
            yield path


def damage(data: Path, kind: str) -> Path:
    """Damage the chunk that holds the middle of DAMAGED; the node is stopped.  Returns its file."""
    middle = f"{DAMAGED} event {EVENTS // 2:06d}".encode()
    (chunk,) = [path for path in chunks_of(data, DAMAGED) if middle in path.read_bytes()]
    content = bytearray(chunk.read_bytes())
    at = content.index(middle)
    if kind == "missing":
        chunk.unlink()
    elif kind == "short":
        chunk.write_bytes(content[:at])
    else:
        content[at + 1000] ^= 16
        chunk.write_bytes(content)
    return chunk
