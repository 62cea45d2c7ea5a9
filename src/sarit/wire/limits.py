"""Versions, sizes and buffers of the wire protocol, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# -- wire ---------------------------------------------------------------------------------
MAX_WIRE_PAYLOAD_BYTES: Final = 0x00FF_FFFF
MAX_WIRE_STRING_BYTES: Final = 0xFFFF
WIRE_VERSION: Final = 17
OLDEST_WIRE_VERSION: Final = 5
# If more bytes than this follow the data of AppendBlockEnd, the data is copied: a view would keep them in memory.
MAX_TRAILING_BYTES: Final = 1024
# A payload from this size on is received into a buffer of its own.
LARGE_FRAME_BYTES: Final = 16 * KIB
# A payload above this size is received in pieces, so that memory is allocated for received bytes, not announced ones.
FRAME_PIECE_BYTES: Final = 1 * MIB
COPIED_FRAME_BYTES: Final = 64 * KIB  # up to this size a copy costs less than a second read
RECEIVE_WINDOW_BYTES: Final = 256 * KIB
SMALL_RECEIVE_WINDOW_BYTES: Final = 8 * KIB
FIRST_RECEIVE_WINDOW_BYTES: Final = 1 * KIB  # the window of a new connection
# Shorter pieces of a frame are joined, longer ones are sent by reference.
JOINED_PIECE_BYTES: Final = 4096
UUID_BYTES: Final = 16

# -- container and durable log --------------------------------------------------------------
MAX_SEGMENT_NAME_BYTES: Final = 4 * KIB

# -- numbers the protocol gives a meaning ------------------------------------------------------
NO_VERSION: Final = -(1 << 63)
