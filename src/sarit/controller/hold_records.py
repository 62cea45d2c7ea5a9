"""Holds: what links have not copied yet of streams, so that no truncation removes it.

A hold is a row beside the records of its stream, `o/<stream>/h/<link id>`, with a cut: the stream keeps everything
behind it, whatever its retention policy and that policy's maximum say, and a user's truncation beyond it is refused.
The link moves the cut forward as it copies.  The row goes when the stream or the link goes.  `controller/holds.py`
writes these rows; their bytes are in docs/formats/controller-records.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.core.errors import Corrupt, Invalid
from sarit.core.versioned_objects import Cursor, pack_long, pack_text

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.cuts import Cut
    from sarit.core.names import StreamName

_FORMAT: Final = b"\1"


@dataclass(frozen=True, slots=True)
class Hold:
    """The part of a stream that a link, by its name, holds: everything behind `cut`.

    `since_ms`: when the link was there."""

    link: str
    cut: Cut
    since_ms: int


def encode_hold(hold: Hold) -> bytes:
    """Encode a hold."""
    return _FORMAT + pack_text(hold.link) + pack_long(hold.since_ms) + codec.pack_cut(hold.cut)


def decode_hold(data: bytes) -> Hold:
    """Decode a hold.  Raises Corrupt."""
    try:
        cursor = Cursor(data)
        if (found := cursor.take(1)) != _FORMAT:
            raise Invalid(f"its format is {found[0]}, and {_FORMAT[0]} is known")
        link, since_ms, cut = cursor.text(), cursor.compact_long(), codec.take_cut(cursor)
        if not cursor.at_end:
            raise Invalid("it has bytes after its end")
    except Invalid as error:
        raise Corrupt(f"the record of a link that holds a stream is damaged: {error}") from None
    return Hold(link, cut, since_ms)


async def holds_of(catalog: Catalog, name: StreamName) -> list[Hold]:
    """Return what links hold of a stream.  Raises NotFound (scope), Unavailable, Corrupt."""
    return [decode_hold(value.value) for _, value in await catalog.stream_records(name, keys.HOLDS)]
