"""Deletes the blobs of indexes that no job has any more: of streams that are not searchable any more, or deleted.

The names of blobs are read *before* it is asked whether a job has the index.  So the blobs of a job that is created
meanwhile, for the same stream, are not among those that are deleted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Conflict, Invalid
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.search.ports import Blobs, Rows

# The rows of indexes: the creation id of the stream, and the stream's name.
REGISTERED: Final = b"i/"


async def delete_dead(blobs: Blobs, rows: Rows, is_alive: Callable[[StreamName, str], Awaitable[bool]]) -> int:
    """Delete the blobs of indexes that are not alive, and their rows.  Returns how many.  Raises Unavailable.

    `is_alive`: returns whether a job has the index of a stream with a creation id."""
    named: dict[str, list[str]] = {}
    for name in await blobs.names(""):
        named.setdefault(name.partition("/")[0], []).append(name)
    registered = {
        key[len(REGISTERED) :].decode(): (value, version) for key, value, version in await rows.scan(REGISTERED)
    }
    deleted = 0
    for stream_id in sorted(named.keys() | registered.keys()):
        value, version = registered.get(stream_id, (b"", None))
        # An indexer enters its index before it makes a blob: one without an entry is left of a sweep that was cut off.
        if value and await is_alive(_name(value), stream_id):
            continue
        for name in named.get(stream_id, ()):
            await blobs.delete(name)
            deleted += 1
        if version is not None:
            with suppress(Conflict):  # an indexer has begun meanwhile
                await rows.put(REGISTERED + stream_id.encode(), None, version)
    return deleted


def _name(value: bytes) -> StreamName:
    scope, slash, stream = value.decode().partition("/")
    if not slash:
        raise Invalid("the entry of an index does not name a stream")
    return StreamName(scope, stream)
