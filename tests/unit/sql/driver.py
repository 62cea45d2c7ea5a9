"""A process of one query, and the tables that its parent would find for it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sarit.core.limits import MIB
from sarit.sql.child_protocol import (
    Frame,
    Frames,
    Kind,
    Query,
    Read,
    frame,
    number_of,
    path_of,
    read_of,
    relation_frame,
)
from sarit.sql.ports import Part

POSITION = pa.struct([("segment", pa.int64()), ("offset", pa.int64())])
EVENTS = 1000  # of each of three segments


def orders(segment: int = 0) -> pa.RecordBatch:
    """The events of one segment of shop.orders."""
    places = [{"segment": segment, "offset": 10 * number} for number in range(EVENTS)]
    prices = pa.array(range(EVENTS))
    return pa.record_batch({"sarit": pa.array(places, POSITION), "value": prices.cast(pa.string()), "price": prices})


@dataclass
class Answer:
    """What a process has said.  `code`: how it ended; `error`: None without one."""

    columns: list[str] = field(default_factory=list)
    text: bytes = b""
    rows: list[list[Any]] = field(default_factory=list)
    done: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    guard: str = ""
    code: int | None = None
    reads: list[Read] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    closed: int = 0


def answer(sql: str, form: str = "page", **bounds: Any) -> Answer:
    """Run a query.  `bounds`: other fields of `Query` than the usual ones."""
    usual = {
        "rows": 1000, "cell_chars": 1000, "text_bytes": 4 * MIB, "limit_bytes": 10_000, "memory_bytes": 256 * MIB,
        "address_bytes": 768 * MIB, "threads": 2, "cpu_seconds": 5,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sarit.sql.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={}, cwd="/", start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    found = Answer()
    try:
        frames, scans = Frames(), {}
        while data := os.read(process.stdout.fileno(), 1 << 16):
            for each in frames.feed(data):
                reply = _reply(each, found, scans, Query(sql, form, **(usual | bounds)))
                if reply is not None:
                    # A process that has all its rows ends, whatever its threads have asked for meanwhile; what it
                    # said last is still to be read.
                    with suppress(BrokenPipeError):
                        process.stdin.write(reply.encode())
                        process.stdin.flush()
        found.code = process.wait()
    finally:
        process.kill()
        process.wait()
        with suppress(BrokenPipeError):  # the answer that nobody takes any more
            process.stdin.close()
        process.stdout.close()
    return found


def _reply(each: Frame, found: Answer, scans: dict[int, list[Any]], query: Query) -> Frame | None:
    match each.kind:
        case Kind.READY:
            return query.frame()
        case Kind.FIND:
            found.asked.append(path_of(each))
            return _found(path_of(each))
        case Kind.READ:
            read = read_of(each)
            found.reads.append(read)
            scans[read.scan] = [_encoded(read, segment) for segment in read.numbers]
        case Kind.NEXT:
            left = scans[number_of(each)]
            return Frame(Kind.BATCH, left.pop(0)) if left else Frame(Kind.END)
        case Kind.CLOSE:
            found.closed += 1
        case Kind.COLUMNS:
            document = each.json()
            found.columns, found.guard = [column["name"] for column in document["columns"]], document["guard"]
        case Kind.ROWS:
            found.text += each.body
            found.rows += each.json() if query.form == "page" else []
        case Kind.DONE:
            found.done = each.json()
        case Kind.ERROR:
            found.error = each.json()
    return None


def _found(path: tuple[str, ...]) -> Frame:
    if path == ("shop", "orders"):
        schema = orders().schema.serialize().to_pybytes()
        return relation_frame(0, [Part(segment, 3000, segment) for segment in range(3)], schema)
    if path == ("shop", "secret"):
        return frame(Kind.FAILED, {"kind": "forbidden", "text": "ann may not read shop/secret"})
    return frame(Kind.ABSENT, ["shop.orders"])


def _encoded(read: Read, segment: int) -> bytes:
    columns = list(dict.fromkeys(name.partition(".")[0] for name in read.columns))
    sink = pa.BufferOutputStream()
    some = orders(segment).select(columns)
    with pa.ipc.new_stream(sink, some.schema) as writer:
        writer.write_batch(some)
    return sink.getvalue().to_pybytes()
