"""Commands about the connection itself, and those of administrators."""

from typing import Annotated, Final, NamedTuple

from sarit.wire.commands.registry import Command, command
from sarit.wire.limits import OLDEST_WIRE_VERSION, WIRE_VERSION
from sarit.wire.primitives import FLAG, LONG, TEXT, Int, ListCodec, Long, Name, StructCodec, Text


@command(-127)
class Hello(Command):
    """First frame of either side: the versions it speaks."""

    high_version: Int
    low_version: Int


@command(100)
class KeepAlive(Command):
    """Answered by itself; a client's time-out of a silent connection needs the answer."""


@command(-3)
class FlushToStorage(Command):
    """Administrator: move everything of a container to long-term storage."""

    container_id: Int
    token: Text
    request_id: Long


@command(-4)
class StorageFlushed(Command):
    """Answer to FlushToStorage."""

    request_id: Long


@command(-5)
class ListStorageChunks(Command):
    """Administrator: which chunks hold a segment."""

    segment: Name
    token: Text
    request_id: Long


class StorageChunk(NamedTuple):
    """One chunk; lengths and offset in bytes."""

    length_in_metadata: int
    length_in_storage: int
    start_offset: int
    name: str
    exists_in_storage: bool


StorageChunks = Annotated[
    tuple[StorageChunk, ...], ListCodec(StructCodec(StorageChunk, tuple, (LONG, LONG, LONG, TEXT, FLAG)))
]


@command(-6)
class StorageChunksListed(Command):
    """Answer to ListStorageChunks."""

    request_id: Long
    chunks: StorageChunks


OUR_HELLO: Final = Hello(WIRE_VERSION, OLDEST_WIRE_VERSION)


def negotiate(peer: Hello) -> bool:
    """Return whether both sides speak a common version.

    A server answers OUR_HELLO always, first, and closes when this is false (wire.md par. 3): the Rust client
    fails without an answer, whatever the versions.
    """
    return peer.low_version <= WIRE_VERSION and peer.high_version >= OLDEST_WIRE_VERSION
