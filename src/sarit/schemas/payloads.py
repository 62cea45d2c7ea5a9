"""What decoders and encoders of payloads have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rows:
    """Decoded payloads: `columns`, one per field.  `bad` (numpy bool): rows whose payloads could not be decoded.

    `event_of` (numpy int64): the index of each row's payload; None: one row per payload, in order."""

    columns: list[pa.Array]
    bad: Any
    event_of: Any = None


class PayloadReader(Protocol):
    """Decodes payloads to columns; pickled to tasks."""

    def read(self, payloads: pa.Array) -> Rows:
        """Decode binary payloads; a null payload is bad."""

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a bad payload."""


class PayloadWriter(Protocol):
    """Encodes columns as payloads; pickled to tasks."""

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Encode rows.  Returns the payloads and the routing key of each (None: no keys).  Raises Invalid."""
