"""The codec of payloads with Pravega's header that is supported: gzip.

Pravega's Java encoder compresses its whole buffer, of which the payload is the beginning: zeros may follow it.  Pure.
"""

from __future__ import annotations

import zlib
from typing import Final

from sarit.core.errors import Invalid
from sarit.core.texts import cut_text
from sarit.serializers.limits import MAX_DECOMPRESSED_EVENT_BYTES

GZIP: Final = "application/x-gzip"
_WINDOW: Final = 16 + zlib.MAX_WBITS
_SHOWN: Final = 100


def check_codec(codec: str) -> None:
    """Check that payloads of a codec can be decoded; "" is none.  Raises Invalid."""
    if codec not in ("", GZIP):
        raise Invalid(f"the codec {cut_text(codec, _SHOWN)} is not supported: {GZIP} is, and none")


def decompressed(data: bytes) -> bytes:
    """Return what gzip has compressed.  Raises Invalid, also for more than `MAX_DECOMPRESSED_EVENT_BYTES`."""
    unzip = zlib.decompressobj(_WINDOW)
    try:
        payload = unzip.decompress(data, MAX_DECOMPRESSED_EVENT_BYTES)
    except zlib.error as error:
        raise Invalid(f"its payload is not compressed as its codec says: {error}") from None
    if unzip.unconsumed_tail or not unzip.eof:
        raise Invalid(
            f"its payload is cut, or has more than {MAX_DECOMPRESSED_EVENT_BYTES:,} bytes when it is decompressed"
        )
    return payload
