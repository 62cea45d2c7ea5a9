"""The beginning of what a structure stores: which structure it is, and the version of its format (pure).

kind, one byte: "c" counter, "l" list, "m" map, "q" queue, "s" set; version of the format, one byte: 1
"""

from __future__ import annotations

from typing import Final

from sarit.core.errors import Corrupt, Invalid

VERSION: Final = 1
COUNTER: Final = b"c"
LIST: Final = b"l"
MAP: Final = b"m"
QUEUE: Final = b"q"
SET: Final = b"s"
_NAMES: Final = {COUNTER: "counter", LIST: "list", MAP: "map", QUEUE: "queue", SET: "set"}
_HEADER_SIZE: Final = 2


def with_header(kind: bytes, body: bytes) -> bytes:
    """Return what is stored of a structure of a kind."""
    return kind + bytes((VERSION,)) + body


def body_of(kind: bytes, data: bytes) -> bytes:
    """Return what follows the header.  Raises Invalid (it is another structure), Corrupt."""
    found, version = data[:1], data[1:_HEADER_SIZE]
    if found not in _NAMES or not version:
        raise Corrupt(f"these bytes are not a shared {_NAMES[kind]}: does something else write to this name?")
    if found != kind:
        raise Invalid(f"this name is a shared {_NAMES[found]}, not a {_NAMES[kind]}: choose another one")
    if version[0] != VERSION:
        raise Corrupt(f"this {_NAMES[kind]} has version {version[0]}; version {VERSION} is known: update this program")
    return data[_HEADER_SIZE:]
