"""Frames between the console's process and the process of a query."""

from __future__ import annotations

import struct

import pytest

from sarit.core.errors import Corrupt
from sarit.sql.child_protocol import (
    Frame,
    Frames,
    Kind,
    Query,
    Read,
    frame,
    number_of,
    path_of,
    query_of,
    read_of,
    relation_frame,
    relation_of,
)
from sarit.sql.ports import Part

SOME = [frame(Kind.READY), frame(Kind.FIND, ["shop", "orders"]), Frame(Kind.ROWS, b"[[1]]"), frame(Kind.NEXT, 7)]


def fed(frames: Frames, data: bytes) -> list[Frame]:
    return list(frames.feed(data))


def test_frames_arrive_whatever_the_pipe_cuts():
    data = b"".join(each.encode() for each in SOME)
    for size in range(1, len(data) + 1):
        frames = Frames()
        found = [each for at in range(0, len(data), size) for each in fed(frames, data[at : at + size])]
        assert found == SOME


def test_bytes_of_a_frame():
    assert frame(Kind.FIND, ["a"]).encode().hex() == "00000006" + "42" + b'["a"]'.hex()
    assert Frame(Kind.READY).encode().hex() == "0000000141"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">IB", 0, 1), "a message of 0 bytes"),
        (struct.pack(">IB", 1 << 20, 65), "a message of 1048576 bytes, where at most 1024 are allowed"),
        (struct.pack(">IB", 1, 200), "a message of the unknown kind 200"),
    ],
)
def test_wrong_frames_are_refused_before_they_are_kept(data, why):
    with pytest.raises(Corrupt, match=why):
        fed(Frames(1024), data)


def test_relation_and_query_come_back():
    parts = [Part(0, 10, 3, 0, 100, (5, 7)), Part(9, 1)]
    assert relation_of(relation_frame(4, parts, b"schema")) == (4, parts, b"schema")
    query = Query("SELECT 'é'", "page", 1, 2, 3, 4, 5, 6, 7, 8)
    assert query_of(query.frame()) == query
    read = Read(1, 2, [3, 4], ["sarit.offset", "value"])
    assert read_of(read.frame()) == read


@pytest.mark.parametrize(
    ("take", "body"),
    [
        (read_of, b"[1, 2, [3]]"),
        (read_of, b'[1, 2, ["3"], ["a"]]'),
        (read_of, b"[1, 2, [true], []]"),
        (read_of, b"[1, 2, [3], [4]]"),
        (read_of, b"[1, 2, [3], " + b"[" * 100_000),
        (read_of, b"[1, 2, [" + b",".join([b"1"] * 20_001) + b"], []]"),
        (read_of, b"no JSON"),
        (path_of, b"[]"),
        (path_of, b'["a", "b", "c", "d"]'),
        (path_of, b'["a", 1]'),
        (path_of, b'{"a": 1}'),
        (number_of, b"true"),
        (number_of, b'"1"'),
        (query_of, b'{"sql": "SELECT 1", "power": 9}'),
    ],
)
def test_a_hostile_process_is_understood_or_refused(take, body):
    with pytest.raises(Corrupt):
        take(Frame(Kind.READ, body))
