"""`sarit import`: the events of a file to a stream, each once."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from sarit.cli.contexts import registry_for
from sarit.cli.limits import MAX_LINE_BYTES
from sarit.cli.names import STREAM
from sarit.cli.near_names import NamedCommand
from sarit.cli.options import controller_option, count_of, format_option, show
from sarit.cli.pipes import TOO_LONG, end_interrupted
from sarit.cli.transfer import parquet_format, raw_format, stream_properties, stream_schemas
from sarit.cli.transfer.export_command import format_of
from sarit.cli.transfer.limits import FILE_BEGIN_BYTES, IMPORT_BATCH_BYTES, IMPORT_BATCH_EVENTS, IMPORT_READ_BYTES
from sarit.cli.transfer.progress import Noted, Shown
from sarit.cli.transfer.rows import from_json
from sarit.client.core.values import TransactionStatus
from sarit.core.errors import Invalid
from sarit.env.background import shielded
from sarit.env.real import RealClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.cli.transfer.rows import Row
    from sarit.client.transactions.transaction import TransactionalWriter
    from sarit.core.names import StreamName


@click.command("import", cls=NamedCommand)
@click.argument("file", type=click.Path(exists=True, allow_dash=True))
@click.argument("name", type=STREAM)
@click.option("--as", "form", type=click.Choice(["jsonl", "parquet", "raw"]), help="The format, if the name is silent.")
@click.option("--drop-unknown", is_flag=True, help="Leave out fields and columns that an event cannot have.")
@click.option("--create", is_flag=True, help="Create scope and stream when they are missing.")
@click.option("--progress", type=click.Path(dir_okay=False), help="The file of progress.  [default: FILE.import]")
@click.option("--registry", metavar="URL", help="Where to register the schemas of its events, as of `sarit schema`.")
@click.option("--no-schemas", is_flag=True, help="Do not register the schemas in FILE.schemas.")
@controller_option
@format_option
def import_(
    file: str, name: StreamName, form: str | None, drop_unknown: bool, create: bool, progress: str | None,
    registry: str | None, no_schemas: bool, controller: str, output: str,
) -> None:  # fmt: skip
    """Write the events of FILE to SCOPE/STREAM; "-" is standard input.

    FILE is what `sarit export` writes; lines and Parquet files of other programs need an event alone.  Events go by
    transactions of some thousands, so each is written once, also by an import that was killed and is repeated: until
    all is done, FILE.import says how far it is.  From standard input there is none unless --progress names it.

    Events of one key stay in their order.  The key is the one in the file.  Events without one, as plain events, stay
    in the order of the segment that they were in.

    If there is FILE.schemas, its schemas are registered before, with the ids that the events name.
    """
    chosen = format_of(file, form)
    if not no_schemas and file != "-" and stream_schemas.path_of(file).exists():
        from sarit.cli.schema.registry import open_registry

        count = stream_schemas.register(file, open_registry(registry_for(click.get_current_context(), registry)))
        click.echo(f"sarit: {count_of(count, 'schema')} registered", err=True)
    try:
        rows = _rows(file, chosen, drop_unknown=drop_unknown)
        events = asyncio.run(_import(file, name, chosen, rows, create, progress, controller))
    except KeyboardInterrupt:
        again = progress or file != "-"
        end_interrupted("the import is not complete; the same command goes on where it was" if again else "")
    report = {"stream": str(name), "file": file, "events": events}
    show(output, report, f"{count_of(events, 'event')} of {file} in {name}", err=output == "text")


async def _import(
    file: str, name: StreamName, form: str, rows: Iterator[Row], create: bool, progress: str | None, controller: str
) -> int:
    from sarit.client import aio

    _check_complete(file)
    path = progress or (None if file == "-" else f"{file.rstrip('/')}.import")
    described = {"stream": str(name), "file": _described(file), "format": form}
    noted = Noted(None if path is None else Path(path), described)
    before = noted.read()
    exported = stream_properties.read(file) if create else {}
    async with await aio.connect(controller) as client:
        if create:
            await client.create_scope(name.scope)
            await client.create_stream(name)
            present = await client.stream(name).properties()
            if missing := {each: value for each, value in exported.items() if each not in present}:
                await client.stream(name).set_properties(missing)
        noted.belongs_to(await client.stream(name).creation_id())
        writer = client.transactional_writer(name)
        done = await _settled(writer, before, noted) if before else 0
        if done:
            click.echo(f"sarit: going on after {count_of(done, 'event')}", err=True)
        count = await _copy(writer, rows, done, noted, _size(file))
    noted.remove()
    return count


async def _settled(writer: TransactionalWriter, before: dict[str, Any], noted: Noted) -> int:
    """Return how many events of the file are in the stream: that depends on the transaction that was under way."""
    status = await writer.status(before["transaction"])
    if status in (TransactionStatus.ABORTED, TransactionStatus.ABORTING):
        return int(before["done"])
    if status is TransactionStatus.UNKNOWN:
        raise Invalid(
            f"nobody knows any more whether events {before['done']} to {before['next']} are in the stream: the "
            f"transaction ended too long ago. See what the stream ends with, and delete {noted.path}"
        )
    # The transaction was noted when all its events were durable, so it may be committed, whoever began it.
    await writer.commit(before["transaction"])
    return int(before["next"])


async def _copy(writer: TransactionalWriter, rows: Iterator[Row], done: int, noted: Noted, total: int) -> int:
    shown = Shown(RealClock(), total)
    skipped = 0
    for row in islice(rows, done):
        skipped += 1
        shown.add(0, len(row.event))
    if skipped < done:
        raise Invalid(f"the file has {skipped} events, and {done} of it are in the stream: it is another file")
    at = done
    try:
        while batch := _batch(rows):
            transaction = await writer.begin()
            try:
                transaction.write_many([row.event for row in batch], [row.routing_key for row in batch])
                await transaction.flush()
            except BaseException:
                # Nothing names it yet: nobody would end it before its lease does.
                await shielded(asyncio.ensure_future(transaction.abort(wait=False)))
                raise
            noted.write({"done": at, "next": at + len(batch), "transaction": transaction.id.hex})
            await transaction.commit()
            at += len(batch)
            shown.add(len(batch), sum(len(row.event) for row in batch))
    except Invalid as error:
        raise Invalid(f"{error}; {count_of(at, 'event')} before it are in the stream") from None
    finally:
        shown.end()
    return at


def _batch(rows: Iterator[Row]) -> list[Row]:
    """Return the next rows, for one transaction.  Raises Invalid once the rows before a bad one were returned."""
    out: list[Row] = []
    size = 0
    for row in rows:
        out.append(row)
        size += len(row.event)
        if size >= IMPORT_BATCH_BYTES or len(out) >= IMPORT_BATCH_EVENTS:
            break
    return out


def _check_complete(file: str) -> None:
    exported = f"{file.rstrip('/')}.progress"
    if file != "-" and Path(exported).exists():
        raise Invalid(
            f"{file} is of an export that is not complete, as {exported} says: repeat that export until it is done, or "
            "delete that file to import what there is"
        )


def _rows(file: str, form: str, *, drop_unknown: bool = False) -> Iterator[Row]:
    """Yield the rows of a file.  Raises Invalid, which names the file and the place."""
    try:
        if form == "parquet":
            if file == "-":
                raise Invalid("Parquet cannot be read from a pipe: name the file")
            yield from parquet_format.rows(file, drop_unknown=drop_unknown)
            return
        with _opened(file) as source:
            yield from raw_format.rows(source) if form == "raw" else _lines(source, drop_unknown=drop_unknown)
    except Invalid as error:
        raise Invalid(f"{file}: {error}") from None


def _opened(file: str) -> BinaryIO:
    return sys.stdin.buffer if file == "-" else Path(file).open("rb", buffering=IMPORT_READ_BYTES)


def _lines(source: BinaryIO, *, drop_unknown: bool) -> Iterator[Row]:
    for number, line in enumerate(iter(partial(source.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise Invalid(f"line {number}: {TOO_LONG}")
        if not line.strip():
            continue
        try:
            yield from_json(line, drop_unknown=drop_unknown).row()
        except Invalid as error:
            cut_off = "" if line.endswith(b"\n") else "; it is the last line, and has no end: the file may be cut off"
            raise Invalid(f"line {number}: {error}{cut_off}") from None


def _described(file: str) -> str:
    """Return what must be the same when an import goes on: where the file is, and how it begins.

    Not the rest: who mends a bad line goes on after the lines before it."""
    if file == "-":
        return file
    path = Path(file).resolve()
    if path.is_dir():
        return f"{path}: {', '.join(sorted(found.name for found in _files(path)))}"
    with path.open("rb") as begin:
        return f"{path}: {raw_format.checksum(begin.read(FILE_BEGIN_BYTES)):08x}"


def _files(path: Path) -> list[Path]:
    return list(path.glob("*.parquet")) if path.is_dir() else [path]


def _size(file: str) -> int:
    return 0 if file == "-" else sum(found.stat().st_size for found in _files(Path(file)))
