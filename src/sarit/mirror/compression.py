"""Bytes of many reads or writes in one field of a message, compressed by zstd where both sides have it and it helps.

The bytes of a peer are hostile: a frame has to declare its length, which is compared with what the message says, and
bounded, before any memory is taken for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.mirror.limits import COMPRESSION_REST_BATCHES, MAX_MIRROR_DATA_BYTES, MIN_COMPRESSION_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.rpc.generated import mirror_pb2 as pb


def compresses() -> bool:
    """Return whether the package for zstd is installed (extra `mirror`)."""
    return find_spec("zstandard") is not None


class Compressor:
    """Compresses batches, and rests for some where it does not help: bytes may be compressed or encrypted already."""

    def __init__(self) -> None:
        self._rest = 0

    def __repr__(self) -> str:
        return f"<Compressor, rests for {self._rest} batches>"

    def pack(self, message: pb.MirrorBytes, pieces: Sequence[bytes], *, zstd: bool) -> None:
        """Put pieces of bytes into a message.  `zstd`: the other side reads it."""
        data = b"".join(pieces)
        message.length = len(data)
        if zstd and data and compresses():
            if not self._rest:
                import zstandard

                packed = zstandard.ZstdCompressor(level=1).compress(data)
                if len(packed) <= len(data) * (1 - MIN_COMPRESSION_SHARE):
                    message.data, message.zstd = packed, True
                    return
                self._rest = COMPRESSION_REST_BATCHES
            else:
                self._rest -= 1
        message.data = data


def unpack(message: pb.MirrorBytes, most: int = MAX_MIRROR_DATA_BYTES) -> bytes:
    """Return the bytes of a message, `most` at most.  Raises Invalid."""
    length, data = message.length, message.data  # which copies the bytes each time that it is asked for
    if not 0 <= length <= most:
        raise Invalid(f"a batch of {length} bytes between the sides of a link: the most is {most}")
    if not message.zstd:
        if len(data) != length:
            raise Invalid(f"a batch between the sides of a link has {len(data)} bytes, and says {length}")
        return data
    if not compresses():
        raise Invalid("a batch between the sides of a link is compressed, and zstandard is not installed here")
    import zstandard

    try:
        if zstandard.frame_content_size(data) != length:
            raise Invalid("a compressed batch between the sides of a link declares another length than its message")
        data = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
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
