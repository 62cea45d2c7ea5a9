"""Events whose bytes are derived from writer and number, the same in the processes of both clients."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from simulation.events import body, framed

ROOT: Final = Path(__file__).resolve().parents[2]
SCOPE: Final = "chaos"
STREAM: Final = "events"
OFFICIAL_WRITER: Final = 100
_FILLER: Final = (0, 13, 100, 500, 3000)
_LARGE_EVERY: Final = 997
_LARGE_BYTES: Final = 200_000


def event(writer: int, number: int) -> bytes:
    """The event's own bytes."""
    size = _LARGE_BYTES if number % _LARGE_EVERY == 0 else _FILLER[(number * 7 + writer) % len(_FILLER)]
    return body(writer, number, size)


def stored_bytes(writer: int, number: int) -> int:
    """How long it is in its segment."""
    return len(framed(event(writer, number)))


def key(writer: int) -> str:
    """Each writer has one routing key, so that its events keep their order."""
    return f"writer-{writer}"
