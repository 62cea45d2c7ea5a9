"""Places in streams as a page names them: head, tail, a time, or the text of a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.core.times import parse_time

if TYPE_CHECKING:
    from sarit.client.aio import Client
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


def is_time(text: str) -> bool:
    """Return whether a place is a time: the text of a cut begins with a letter."""
    return text[:1].isdigit() or text.startswith("-")


async def cut_of(client: Client, stream: StreamName, text: str, now_ms: int) -> StreamCut:
    """Return a place as a cut, as `sarit read --from` takes it; of a time, one that is a little earlier.

    Raises Invalid, NotFound."""
    if is_time(text):
        return await client.stream(stream).cut_at(parse_time(text, now_ms))
    found = await client.cut(stream, text)
    if found is None:
        raise Invalid("a place in a stream: give head, tail, a time or a cut")
    return found
