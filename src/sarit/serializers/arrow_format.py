"""Serializers of Arrow: a table an event, in Arrow's stream format, which has its schema inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.core.extras import require

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowSerializer:
    """Encodes record batches and tables, each as one event.  Needs the extra `arrow`."""

    def __init__(self) -> None:
        require("arrow", "ArrowSerializer")

    def __repr__(self) -> str:
        return "ArrowSerializer()"

    def serialize(self, value: pa.RecordBatch | pa.Table) -> bytes:
        """Return a stream of Arrow with the rows of a record batch or a table.  Raises Invalid for anything else."""
        import pyarrow as pa

        if not isinstance(value, pa.RecordBatch | pa.Table):
            raise Invalid(f"the value is a {type(value).__name__}, not a record batch or a table of Arrow")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as stream:
            stream.write(value)
        return bytes(sink.getvalue())


class ArrowDeserializer:
    """Decodes streams of Arrow, each to a table.  Needs the extra `arrow`."""

    def __init__(self) -> None:
        require("arrow", "ArrowDeserializer")

    def __repr__(self) -> str:
        return "ArrowDeserializer()"

    def deserialize(self, payload: bytes) -> pa.Table:
        """Return the table of a stream of Arrow.  Raises Invalid for what is none, and for damaged columns."""
        import pyarrow as pa

        try:
            with pa.ipc.open_stream(payload) as stream:
                found = stream.read_all()
            found.validate(full=True)  # offsets within columns are from outside, too
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise Invalid(f"it is no stream of Arrow: {str(error)[:200]}") from None
        return found
