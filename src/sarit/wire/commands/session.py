"""Commands about the connection itself, and those of administrators."""

from typing import Annotated, Final, NamedTuple

from sarit.wire.commands.registry import Command, command
from sarit.wire.limits import OLDEST_WIRE_VERSION, WIRE_VERSION
from sarit.wire.primitives import FLAG, LONG, TEXT, Int, ListCodec, Long, Name, StructCodec, Text


@command(-127)
class Hello(Command):
    """The first frame of either side, with the range of versions that it speaks."""

    high_version: Int
    low_version: Int


@command(100)
class KeepAlive(Command):
    """A heartbeat, which is answered by the same command: clients drop connections that are silent for long."""


@command(-3)
class FlushToStorage(Command):
    """An administrator's request to flush a container to long-term storage.  Answer: StorageFlushed."""

    container_id: Int
    token: Text
    request_id: Long


@command(-4)
class StorageFlushed(Command):
    """Answer to FlushToStorage."""

    request_id: Long


@command(-5)
class ListStorageChunks(Command):
    """An administrator's request for the chunks of a segment.  Answer: StorageChunksListed."""

    segment: Name
    token: Text
    request_id: Long


class StorageChunk(NamedTuple):
    """A chunk of a segment; lengths and offset are in bytes."""

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

    A server always answers with OUR_HELLO, and then closes the connection if this is false (wire.md par. 3): the Rust
    client fails without an answer, whatever the versions.
    """
    return peer.low_version <= WIRE_VERSION and peer.high_version >= OLDEST_WIRE_VERSION
