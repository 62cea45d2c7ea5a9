"""Bytes of many reads or writes in one field of a message, compressed by zstd where both sides have it and it helps.

The bytes of a peer are hostile: a frame has to declare its length, which is compared with what the message says, and
bounded, before any memory is taken for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.mirror.limits import COMPRESSION_REST_BATCHES, MAX_MIRROR_DATA_BYTES, MIN_COMPRESSION_SHARE
from sarit.rpc.generated import mirror_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence


def compresses() -> bool:
    """Return whether the package for zstd is installed (extra `mirror`)."""
    return find_spec("zstandard") is not None


class Compressor:
    """Compresses batches, and rests for some where it does not help: bytes may be compressed or encrypted already."""

    def __init__(self) -> None:
        self._rest = 0

    def __repr__(self) -> str:
        return f"<Compressor, rests for {self._rest} batches>"

    def pack(self, pieces: Sequence[bytes], *, zstd: bool) -> pb.MirrorBytes:
        """Return pieces of bytes as one message.  `zstd`: the other side reads it."""
        data = b"".join(pieces)
        if not zstd or not data or not compresses():
            return pb.MirrorBytes(data=data, length=len(data))
        if self._rest:
            self._rest -= 1
            return pb.MirrorBytes(data=data, length=len(data))
        import zstandard

        packed = zstandard.ZstdCompressor(level=1).compress(data)
        if len(packed) > len(data) * (1 - MIN_COMPRESSION_SHARE):
            self._rest = COMPRESSION_REST_BATCHES
            return pb.MirrorBytes(data=data, length=len(data))
        return pb.MirrorBytes(data=packed, length=len(data), zstd=True)


def unpack(message: pb.MirrorBytes, most: int = MAX_MIRROR_DATA_BYTES) -> bytes:
    """Return the bytes of a message, `most` at most.  Raises Invalid."""
    length = message.length
    if not 0 <= length <= most:
        raise Invalid(f"a batch of {length} bytes between the sides of a link: the most is {most}")
    if not message.zstd:
        if len(message.data) != length:
            raise Invalid(f"a batch between the sides of a link has {len(message.data)} bytes, and says {length}")
        return message.data
    if not compresses():
        raise Invalid("a batch between the sides of a link is compressed, and zstandard is not installed here")
    import zstandard

    try:
        if zstandard.frame_content_size(message.data) != length:
            raise Invalid("a compressed batch between the sides of a link declares another length than its message")
        data = zstandard.ZstdDecompressor().decompress(message.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Invalid(f"a batch between the sides of a link is not compressed by zstd: {error}") from None
    if len(data) != length:
        raise Invalid("a compressed batch between the sides of a link has another length than it declares")
    return data


def split(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Return the pieces of a batch by their lengths.  Raises Invalid: they are not those of the batch."""
    if any(length < 0 for length in lengths) or sum(lengths) != len(data):
        raise Invalid("the lengths of the pieces of a batch are not those of its bytes")
    pieces, at = [], 0
    for length in lengths:
        pieces.append(data[at : at + length])
        at += length
    return pieces
