"""Frames of a byte stream: what a loader hands out where a stream has no events (pure)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sarit.core.errors import Corrupt, Invalid
from sarit.training.limits import MAX_TRAINING_FRAME_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIXES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True, slots=True)
class FixedFrames:
    """Frames of equal length, from the first byte on."""

    frame_bytes: int

    def __post_init__(self) -> None:
        """Check the length.  Raises Invalid."""
        if not 1 <= self.frame_bytes <= MAX_TRAINING_FRAME_BYTES:
            raise Invalid(f"frames of {self.frame_bytes} bytes: give 1 to {MAX_TRAINING_FRAME_BYTES}")

    @property
    def header_bytes(self) -> int:
        """How many bytes are before each frame."""
        return 0

    def ends(self, data: bytes) -> list[int]:
        """Return where the whole frames of some bytes end."""
        return list(range(self.frame_bytes, len(data) + 1, self.frame_bytes))


@dataclass(frozen=True, slots=True)
class PrefixedFrames:
    """Frames with their length before each, as an unsigned integer of 1, 2, 4 or 8 bytes.

    They can only be found from the first one on, so one reader reads all of them: there are no shards."""

    prefix_bytes: int = 4
    byteorder: str = "big"
    max_frame_bytes: int = MAX_TRAINING_FRAME_BYTES

    def __post_init__(self) -> None:
        """Check the form of the length.  Raises Invalid."""
        if self.prefix_bytes not in _PREFIXES:
            raise Invalid(f"a length of {self.prefix_bytes} bytes before each frame: give 1, 2, 4 or 8")
        if self.byteorder not in ("big", "little"):
            raise Invalid(f"byteorder={self.byteorder}: give big or little")
        if not 0 <= self.max_frame_bytes <= MAX_TRAINING_FRAME_BYTES:
            raise Invalid(f"frames of up to {self.max_frame_bytes} bytes: give 0 to {MAX_TRAINING_FRAME_BYTES}")

    @property
    def header_bytes(self) -> int:
        """How many bytes are before each frame."""
        return self.prefix_bytes

    def ends(self, data: bytes) -> list[int]:
        """Return where the whole frames of some bytes end.  Raises Corrupt: a length that no frame may have."""
        prefix = struct.Struct((">" if self.byteorder == "big" else "<") + _PREFIXES[self.prefix_bytes])
        found: list[int] = []
        at, size = 0, len(data)
        while at + prefix.size <= size:
            (length,) = prefix.unpack_from(data, at)
            if length > self.max_frame_bytes:
                raise Corrupt(
                    f"a frame of {length} bytes, and {self.max_frame_bytes} are allowed: is the length before each "
                    f"frame of {self.prefix_bytes} bytes, in {self.byteorder}-endian order?"
                )
            at += prefix.size + length
            if at > size:
                break
            found.append(at)
        return found


Frames: TypeAlias = FixedFrames | PrefixedFrames


def frame_batch(frames: Frames, data: bytes, offset: int, segment: int) -> tuple[pa.RecordBatch | None, int]:
    """Return the whole frames of some bytes as a record batch (event, segment, offset), and how many bytes they are.

    `offset`: where the bytes begin in their segment.  Raises Corrupt."""
    import numpy as np
    import pyarrow as pa

    if isinstance(frames, FixedFrames):
        # Without a list of ends: there may be a million frames of a few bytes.
        bounds = np.arange(0, len(data) + 1, frames.frame_bytes, dtype=np.int64)
    else:
        bounds = np.array([0, *frames.ends(data)], np.int64)
    count, used = len(bounds) - 1, int(bounds[-1])
    if not count:
        return None, 0
    begins = bounds[:-1]
    if frames.header_bytes:
        values = _without_prefixes(data, bounds, frames.header_bytes)
    else:
        ends = pa.py_buffer(bounds.astype(np.int32))
        values = pa.BinaryArray.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(data)])
    segments = np.full(count, segment, np.int64)
    arrays = [values, _numbers(segments), _numbers(begins + offset)]
    return pa.RecordBatch.from_arrays(arrays, names=["event", "segment", "offset"]), used


def _without_prefixes(data: bytes, bounds: Any, prefix: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    )
    return pc.binary_slice(whole, prefix, int(np.diff(bounds).max()) + 1)


def _numbers(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
