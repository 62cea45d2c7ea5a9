"""The bytes of an envelope, as docs/formats/envelope.md has them."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"\xf5SE"
VERSION: Final = 1
HAS_KEY: Final = 1
HAS_TIME: Final = 2
HEAD: Final = struct.Struct(">3sBHBBqII")  # magic, version, headers, flags, 0, time, bytes of key, bytes of headers
SIZES: Final = struct.Struct(">II")  # of a header: bytes of its name, bytes of its value
MAX_HEADERS: Final = 0xFFFF

# Where the fields begin, for errors that name a place.
AT_VERSION: Final = 3
AT_FLAGS: Final = 6
AT_TIME: Final = 8
AT_KEY_SIZE: Final = 16
AT_HEADERS_SIZE: Final = 20
