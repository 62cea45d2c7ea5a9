"""What `sarit query` prints or writes: a table for people, CSV, JSON, Parquet, Arrow."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import sys
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import click

from sarit.cli.limits import QUERY_CELL_CHARS, QUERY_WIDTH_ROWS
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

FORMATS: Final = ("table", "csv", "json", "parquet", "arrow")
SUFFIXES: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".arrow": "arrow"}
_NULL: Final = ""


class ResultOutput(Protocol):
    """Takes a result batch by batch."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.  Raises OSError, Invalid (the format cannot hold a column)."""

    def flush(self) -> None:
        """Write rows that wait for others."""

    def end(self) -> None:
        """Write what follows the last row."""


def output_of(form: str, file: BinaryIO, schema: pa.Schema) -> ResultOutput:
    """Return the output of a format.  Raises Invalid: the format cannot hold a column of the schema."""
    if form == "table":
        return TableOutput(file, schema)
    if form == "csv":
        return CsvOutput(file, schema)
    if form == "json":
        return JsonOutput(file)
    return ArrowOutput(file, schema) if form == "arrow" else ParquetOutput(file, schema)


@contextmanager
def opened(path: str | None) -> Iterator[BinaryIO]:
    """Open standard output, or a file that is there as a whole when the block has ended without an error."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    beside = Path(f"{path}.partial")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class TableOutput:
    """Columns for people: their widths are those of the first rows."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._names = [shown(name) for name in schema.names]
        self._kinds = list(schema.types)
        self._waiting: list[list[str]] = []
        self._widths: list[int] | None = None
        self._rows = 0
        self._most = QUERY_CELL_CHARS if file.isatty() else sys.maxsize

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            self._waiting.append([_cut(cell(value), self._most) for value in row])
        self._rows += batch.num_rows
        if len(self._waiting) >= QUERY_WIDTH_ROWS:
            self.flush()

    def end(self) -> None:
        """Print the rest."""
        self.flush()

    def flush(self) -> None:
        """Print the rows that wait, and before the first ones the names."""
        lines: list[list[str]] = []
        if self._widths is None:
            self._widths = [max(map(len, cells)) for cells in zip(self._names, *self._waiting, strict=True)]
            lines = [self._names, ["-" * width for width in self._widths]]
        text = "".join(self._line(row) for row in chain(lines, self._waiting))
        self._file.write(text.encode())
        self._waiting.clear()

    def _line(self, cells: Sequence[str]) -> str:
        assert self._widths is not None
        return "  ".join(part.ljust(width) for part, width in zip(cells, self._widths, strict=True)).rstrip() + "\n"


class CsvOutput:
    """CSV with a line of names; what is no number or text is written as a cell of the table."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._file = file
        self._writer.writerow(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        columns = [[_plain(value) for value in column.to_pylist()] for column in batch.columns]
        self._writer.writerows(zip(*columns, strict=True))
        self.end()

    def flush(self) -> None:
        """Write nothing: no row waits."""

    def end(self) -> None:
        """Write what is left."""
        self._file.write(self._text.getvalue().encode(errors="surrogatepass"))
        self._text.seek(0)
        self._text.truncate()


class JsonOutput:
    """A JSON document a line.  Bytes are text where they are UTF-8, and else {"base64": …}."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        lines = [json.dumps(jsonable(row), ensure_ascii=False, allow_nan=False) for row in batch.to_pylist()]
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def flush(self) -> None:
        """Write nothing: no row waits."""

    def end(self) -> None:
        """Write nothing: no line follows the last row."""


class ArrowOutput:
    """A stream of Arrow's IPC format."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._writer = pa.ipc.new_stream(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._writer.write_batch(batch)

    def flush(self) -> None:
        """Write nothing: no row waits."""

    def end(self) -> None:
        """Write the end of the stream."""
        self._writer.close()


class ParquetOutput:
    """A Parquet file, compressed by zstd."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        except (pa.ArrowException, NotImplementedError) as error:
            raise Invalid(f"Parquet cannot hold the result, cast its columns to other types: {error}") from None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        if batch.num_rows:
            self._writer.write_batch(batch)

    def flush(self) -> None:
        """Write nothing: no row waits."""

    def end(self) -> None:
        """Write the footer."""
        self._writer.close()


def cell(value: Any) -> str:
    """Return a value as people read it, on one line and without control characters."""
    if value is None:
        return _NULL
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict | list | tuple):
        return shown(json.dumps(jsonable(value), ensure_ascii=False))
    return shown(str(_plain(value)))


def shown(text: str) -> str:
    """Return a text whose characters a terminal shows, and does not obey."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _plain(value: Any) -> Any:
    """Return a value as a cell of CSV: a number or a text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, dict | list | tuple):
        return json.dumps(jsonable(value), ensure_ascii=False)
    return value


def jsonable(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(name): jsonable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _time(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def echo_rows(count: int) -> None:
    """Say on standard error how many rows there are, for people."""
    click.echo(f"({count:,} {'row' if count == 1 else 'rows'})", err=True)
