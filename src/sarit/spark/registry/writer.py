"""Rows as payloads that name their schema: the header of a registered schema before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from sarit.schemas.payloads import PayloadWriter


class RegisteredWriter:
    """An encoder that puts a header before each payload of another.  Pickled to tasks."""

    def __init__(self, inner: PayloadWriter, header: bytes) -> None:
        self._inner = inner
        self._header = header

    def write(self, rows: pa.RecordBatch, keys: pa.Array | None) -> tuple[pa.Array, pa.Array | None]:
        """Encode rows.  Raises Invalid."""
        payloads, keys = self._inner.write(rows, keys)
        kind = pa.large_binary()
        joined = pc.binary_join_element_wise(pa.scalar(self._header, kind), payloads.cast(kind), pa.scalar(b"", kind))
        return joined, keys
