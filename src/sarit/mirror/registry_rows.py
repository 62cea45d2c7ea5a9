"""Rows of the schema registry as a link copies them: in which order, and which of them a target takes.

The ids of groups, versions and schemas are those of the source, and so are all rows (`registry/keys.py`).  While the
registry is a mirror, nobody else changes it.  Its counters name the source's installation, so that its first own change
after a promotion finds them to be another's, and raises all numbers, as after a restore (`registry/records.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt, Invalid
from sarit.registry import keys, records
from sarit.registry.keys import after_prefix
from sarit.registry.records import Head, Remains

if TYPE_CHECKING:
    from collections.abc import Callable

# The kinds of rows, in the order in which they are copied: what others refer to comes first.  So whoever reads the
# mirror meanwhile finds all that a row names, or not the row.
PREFIXES: Final = (b"s/", b"d/", b"p/", b"e/", b"h/", b"r/", b"t/", b"y/", b"v/", b"g/", b"c/")
RANGES: Final = (*((prefix, after_prefix(prefix)) for prefix in PREFIXES), (b"c", b"c\0"), (b"n", b"n\0"))

_NO_HEAD: Final = Head(Remains())


def check_registry_row(key: bytes, value: bytes | None) -> None:
    """Check a row that a source sends.  Raises Invalid."""
    kind = key[:2]
    if kind not in PREFIXES and key not in (keys.COUNTERS, b"c"):
        raise Invalid(f"the source sends the row {keys.shown(key)} of a registry, which no registry has")
    if value is None:
        return
    try:
        _decode(key, kind, value)
    except (Corrupt, ValueError, IndexError) as error:
        raise Invalid(f"the source sends a damaged row of a registry, {keys.shown(key)}: {error}") from None


def _decode(key: bytes, kind: bytes, value: bytes) -> None:
    what = records.name_of(key)
    if key == keys.COUNTERS:
        records.decode_counters(value)
    elif kind == b"s/":
        part = keys.parse_number(key)
        if part:
            records.require_format(value, what)
        else:
            records.further_parts(value)
    elif kind == b"v/":
        records.decode_version(keys.parse_number(key), value, _NO_HEAD, what)
    elif kind == b"e/":
        if key.split(b"\0")[2].startswith(b"n"):
            records.decode_encoding(keys.parse_number(key), value, what)
        else:
            records.decode_id(value, what)
    elif kind in _SIMPLE:
        _SIMPLE[kind](value, what)
    elif key[:1] == b"c":
        records.decode_settings(value, what)
    else:
        records.require_format(value, what)


_SIMPLE: Final[dict[bytes, Callable[[bytes, str], object]]] = {
    b"g/": records.decode_head,
    b"t/": records.decode_remains,
    b"p/": records.decode_id,
    b"y/": records.decode_type_numbers,
}
