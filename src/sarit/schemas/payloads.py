"""What decoders and encoders of payloads have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Rows:
    """Decoded payloads: `columns`, one per field.  `bad` (numpy bool): rows of payloads that could not be decoded.

    `event_of` (numpy int64): the payload that each row is of; None: one row per payload, in order."""

    columns: list[pa.Array]
    bad: Any
    event_of: Any = None


class PayloadReader(Protocol):
    """Payloads to columns; pickled to tasks."""

    def read(self, payloads: pa.Array) -> Rows:
        """Decode binary payloads; a null one is bad."""

    def problem(self, payload: bytes) -> str:
        """Return what is wrong with a bad payload."""


class PayloadWriter(Protocol):
    """Columns to payloads; pickled to tasks."""

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Encode rows; the payloads, and the routing key of each (None: there are none).  Raises Invalid."""
