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
from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import known_segments
from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.core.versioned_objects import Cursor, pack_long, pack_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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


async def require_not_held(catalog: Catalog, name: StreamName, cut: Mapping[int, int]) -> None:
    """Check that all links that hold a stream have copied what is before a cut.  Raises Conflict."""
    held = await holds_of(catalog, name)
    if not held:
        return
    record = (await catalog.require(name)).record
    known = known_segments(await catalog.epochs_of(name, record, [*cut, *(s for hold in held for s in hold.cut)]))
    for hold in held:
        if not (is_cut(known, hold.cut) and follows(known, cut, hold.cut)):
            raise Conflict(
                f"stream {name} cannot be truncated there yet: the link {hold.link} has not copied all that is "
                f"before; wait for it (sarit link show {hold.link}), or change the link so that it holds nothing"
            )
