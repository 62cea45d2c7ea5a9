"""The names of chunks.

A name is one or more parts joined by `/`.  A part consists of ASCII letters, digits, `.`, `_`, `-`, `=`, `+`, `@` and
`#`, and does not begin with a dot.  Such names are valid without quoting on file systems and on every object store;
names with a leading dot are free for internal files.  No name is also the folder of another one (`a` and `a/b`), since
some object stores are file systems.
"""

from __future__ import annotations

import re
from typing import Final

from sarit.core.errors import Invalid
from sarit.storage.limits import MAX_CHUNK_NAME_BYTES, MAX_CHUNK_PART_BYTES

_PART = rf"[A-Za-z0-9_\-=+@#][A-Za-z0-9._\-=+@#]{{0,{MAX_CHUNK_PART_BYTES - 1}}}"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")


def check_name(name: str) -> None:
    """Check that `name` is a valid chunk name.  Raises Invalid."""
    if len(name) > MAX_CHUNK_NAME_BYTES or _NAME.fullmatch(name) is None:
        raise Invalid(f"{name!r} is not the name of a chunk")


_PACK_SUFFIX: Final = "-p"


def pack_name(prefix: str, sequence: int) -> str:
    """Return the name of a pack: an object that holds pieces of many segments (`storage/packs.py`)."""
    return f"{prefix}/{sequence:012d}{_PACK_SUFFIX}"


def is_pack(name: str) -> bool:
    """Return whether a chunk is a pack.  No other chunk has such a name."""
    return name.endswith(_PACK_SUFFIX)


def container_prefix(number: int) -> str:
    """Return the folder of all chunks of a container."""
    return f"c{number:04d}"


def epoch_prefix(container: int, epoch: int) -> str:
    """Return the folder of all chunks written by one epoch of a container."""
    return f"{container_prefix(container)}/e{epoch:010d}"


def check_prefix(prefix: str) -> None:
    """Check that `prefix` is empty, or whole parts of a name without a final `/`.  Raises Invalid."""
    if prefix:
        check_name(prefix)
