"""The pure parts of continuous queries: candidates, rows, the state of the job, matches as events."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.cuts import StreamCut
from sarit.core.errors import Corrupt, Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.search.batch_index import BatchIndex
from sarit.search.continuous_matches import encoded, is_proof
from sarit.search.continuous_plan import ContinuousState, Intent, Proof, Written
from sarit.search.continuous_queries import CompiledQueries
from sarit.search.continuous_rows import (
    ContinuousQuery,
    Definition,
    Maker,
    changes_key,
    check_name,
    decode_query,
    delete_dead_queries,
    encode_query,
    mapping_key,
    query_key,
    write_rows,
)
from sarit.search.continuous_set import Asked
from sarit.search.limits import MAX_MATCH_EVENT_BYTES
from sarit.search.memory_world import MemoryRows
from sarit.search.query import ALL_TEXT, And, Term
from tests.unit.search.strategies import DOCUMENTS, QUERIES

SOURCE, OUTPUT = StreamName("s", "t"), StreamName("s", "out")
CUT = StreamCut(SOURCE, {SegmentId(0, 0): 5, SegmentId(1, 7): 0})
QUERY = ContinuousQuery("late", "6f" * 16, SOURCE, Definition("delay", OUTPUT), created_ms=5)


@settings(max_examples=300)
@given(st.lists(DOCUMENTS, max_size=20), st.lists(QUERIES, max_size=8))
def test_compiled_queries_match_as_each_by_itself(documents, queries) -> None:
    keyed = [(bytes([n]), query) for n, query in enumerate(queries)]
    compiled = CompiledQueries(keyed)
    index = BatchIndex(documents, compiled.wanted)
    assert compiled.match(index) == [(n, found) for n, query in keyed if (found := BatchIndex(documents).match(query))]


@settings(max_examples=300)
@given(st.lists(DOCUMENTS, max_size=20), st.lists(st.tuples(st.integers(0, 5), st.none() | QUERIES), max_size=30))
def test_queries_that_came_changed_and_went_leave_no_trace(documents, steps) -> None:
    compiled, left = CompiledQueries(), {}
    for number, query in steps:
        key = bytes([number])
        if query is None:
            compiled.remove(key)
            left.pop(key, None)
        else:
            compiled.put(key, query)
            left[key] = query
    new = CompiledQueries(left.items())
    assert compiled.wanted == new.wanted
    first, second = BatchIndex(documents, compiled.wanted), BatchIndex(documents, new.wanted)
    assert compiled.match(first) == new.match(second)
    assert set(compiled.candidates(first)) == set(new.candidates(second))
    for key in left:
        compiled.remove(key)
    assert vars(compiled) == vars(CompiledQueries())


def test_queries_without_their_words_in_a_batch_are_no_candidates() -> None:
    compiled = CompiledQueries(
        [(b"1", And((Term(ALL_TEXT, "a"), Term(ALL_TEXT, "rare")))), (b"2", Term(ALL_TEXT, "b"))]
    )

    class Batch:
        def tokens(self, field: str) -> list[str]:
            return ["a", "b"]

        def keywords(self, field: str) -> list[str]:
            return []

        def match(self, query: object) -> int:
            assert query == Term(ALL_TEXT, "b")
            return 1

    assert compiled.match(Batch()) == [(b"2", 1)]


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        QUERY.adopt(CUT),
        QUERY.suspend("its output is gone"),
        ContinuousQuery("a", "1", SOURCE, None, Definition("x", OUTPUT, True, Maker("ann", frozenset({"r"}))), CUT),
    ],
)  # fmt: skip
def test_rows_are_read_as_they_were_written(query: ContinuousQuery) -> None:
    assert decode_query(encode_query(query)) == query


def test_the_states_of_a_query() -> None:
    assert QUERY.state == "pending"
    adopted = QUERY.adopt(CUT)
    assert (adopted.state, adopted.holds_from) == ("active", CUT)
    failed = adopted.suspend("why " * 500)
    assert (failed.state, failed.holds_from) == ("failed", None)
    assert len(failed.problem) <= 300
    assert failed.adopt(CUT) == adopted


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff", b'{"format": 1, "name": 5}', b"[" * 9999]
)
def test_damaged_rows_and_states_are_named(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_query(data)
    if data:
        with pytest.raises(Corrupt):
            ContinuousState.decode(data)


def test_names_are_checked() -> None:
    assert check_name("late-orders.2") == "late-orders.2"
    for name in ("", "a b", "ä", "a/b", "_a", "x" * 129):
        with pytest.raises(Invalid):
            check_name(name)


def test_the_state_is_read_as_it_was_written() -> None:
    written = Written(OUTPUT, "ab" * 16, StreamCut(OUTPUT, {SegmentId(0, 0): 9}), Proof("6f", 1 << 32, 77), 3)
    state = ContinuousState("aa", CUT, Intent(CUT, {0: 5, 1 << 32: 7}, (written,)), 10, 20, 30, 1, 40)
    assert ContinuousState.decode(state.encode()) == state
    assert ContinuousState.decode(b"") == ContinuousState()
    done = state.done(50)
    assert (done.intent, done.cut, done.matches, done.committed_ms) == (None, CUT, 23, 50)


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (b"text", {"event": "text"}),
        (b"\xff", {"event_base64": "/w=="}),
        (b"x" * (MAX_MATCH_EVENT_BYTES + 1), {"event_bytes": MAX_MATCH_EVENT_BYTES + 1}),
    ],
)
def test_matches_have_the_events_that_queries_want(event: bytes, shown: dict[str, object]) -> None:
    query = ContinuousQuery("late", "6f", SOURCE, None, Definition("delay", OUTPUT, with_event=True))
    asked = Asked({b"late": query})
    ((output, proof, key, data),) = encoded(asked, [(b"late", 1)], [(4, 8)], [event], [1700])
    assert (output, key) == (OUTPUT, "late")
    place = {"query": "late", "id": "6f", "stream": "s/t", "segment": 4, "offset": 8, "time_ms": 1700}
    assert json.loads(data) == place | shown
    assert is_proof(data, proof)
    assert not is_proof(data, Proof("6f", 4, 9))
    assert not is_proof(b"[", proof)


def test_rows_of_deleted_streams_are_deleted() -> None:
    async def has_id(stream: StreamName, stream_id: str) -> bool:
        assert stream == SOURCE
        return stream_id == "aa"

    async def main() -> None:
        rows = MemoryRows()
        for stream_id in ("aa", "bb"):
            await rows.put(query_key(stream_id, "late"), encode_query(QUERY), None)
            await write_rows(rows, SOURCE, stream_id, [(mapping_key(stream_id), b"{}", None)])
        # The queries of this stream were deleted before.
        await write_rows(rows, SOURCE, "cc", [(mapping_key("cc"), b"{}", None)])
        assert await delete_dead_queries(rows, has_id) == 1
        alive = [changes_key("aa"), mapping_key("aa"), query_key("aa", "late")]
        assert [key for key, _, _ in await rows.scan(b"")] == alive

    asyncio.run(main())
