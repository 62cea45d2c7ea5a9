"""A query in a process of its own: what it answers, and that it reaches and takes nothing else.

Each test starts a process; the long list of hostile queries is in tests/console/test_hostile_queries.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from sarit.core.limits import MIB
from sarit.sql.child import pieces
from sarit.sql.child_protocol import Frames, Kind
from tests.limits import HANG_SECONDS
from tests.unit.sql.driver import EVENTS, answer


def test_rows_come_through_the_pipe_and_only_those_of_the_segment():
    found = answer("SELECT count(*) AS n, sum(price) FROM shop.orders WHERE sarit.segment = 1")
    assert found.error is None
    assert found.rows == [[EVENTS, str(sum(range(EVENTS)))]]
    assert found.done == {"rows": 1, "complete": True}
    assert found.code == 0
    assert [list(read.numbers) for read in found.reads] == [[1]]
    assert found.asked == [("shop", "orders")]
    assert found.guard in ("system calls", "limits")


def test_two_scans_and_names_of_every_kind():
    sql = """WITH a AS (FROM shop.orders WHERE price < 3), range AS (SELECT 1 AS x)
             SELECT a.price, b.sarit.segment FROM a JOIN "shop"."orders" b USING (price) ORDER BY ALL LIMIT 2"""
    found = answer(sql, limit_bytes=100_000)
    assert found.error is None
    assert found.rows == [[0, 0]] * 2


def test_result_is_cut_at_rows_and_at_bytes():
    found = answer("SELECT * FROM shop.orders", rows=10)
    assert (len(found.rows), found.done) == (10, {"rows": 10, "complete": False})
    found = answer("SELECT price FROM shop.orders LIMIT 1000", "csv", text_bytes=100)
    lines = found.text.decode().split("\r\n")
    assert lines[:3] == ["price", "0", "1"]
    assert found.done == {"rows": len(lines) - 2, "complete": False}
    assert 100 < len(found.text) <= 107


def test_a_long_text_is_sent_in_pieces_of_whole_characters():
    text = "aé€😀" * 10
    for size in range(4, 40):
        found = list(pieces(text.encode(), size))
        assert "".join(piece.decode() for piece in found) == text
        assert max(map(len, found)) <= size
    whole = answer("SELECT repeat('é', 3000000) AS a", "csv", text_bytes=8 * MIB)
    assert whole.text.decode() == f"a\r\n{'é' * 3_000_000}\r\n"


def test_errors_are_those_of_the_parent_or_name_the_place():
    assert answer("SELECT * FROM shop.secret").error == {"kind": "forbidden", "text": "ann may not read shop/secret"}
    missing = answer("SELECT * FROM shop.ordrs").error
    assert missing is not None
    assert (missing["kind"], "shop.orders" in missing["text"]) == ("not-found", True)
    wrong = answer("SELECT (1").error
    assert wrong is not None
    assert "(line 1, column " in wrong["text"]
    unknown = answer("SELECT price,\n  nope FROM shop.orders").error
    assert unknown is not None
    assert "LINE 2:   nope FROM" in unknown["text"]
    too_much = answer("SELECT * FROM shop.orders", limit_bytes=8999).error
    assert too_much is not None
    assert too_much["planned_bytes"] == 9000


def test_memory_ends_with_an_error_and_time_with_the_process():
    found = answer("SELECT list(a) FROM range(1000000000) AS t(a)", memory_bytes=64 * MIB, address_bytes=256 * MIB)
    assert found.error is not None
    assert "memory" in found.error["text"]
    assert "spill" not in found.error["text"]
    found = answer("SELECT count(*) FROM range(1000000) AS a, range(1000000) AS b", cpu_seconds=0)
    assert (found.error, found.code) == (None, -signal.SIGXCPU)


def test_it_ends_with_its_parent():
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "sarit.sql.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    )
    assert process.stdin is not None
    assert process.stdout is not None
    (ready,) = Frames().feed(os.read(process.stdout.fileno(), 100))
    assert ready.kind is Kind.READY
    process.stdin.close()
    assert process.wait(HANG_SECONDS) == 1
    process.stdout.close()


def test_plans_are_explained_and_nothing_is_run_for_them():
    found = answer("explain SELECT price FROM shop.orders WHERE sarit.segment = 1")
    assert found.error is None
    assert found.columns == ["explain_key", "explain_value"]
    assert "price" in found.rows[0][1]
    assert found.reads == []
    for sql in ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN COPY (SELECT 1) TO '/tmp/x'", "EXPLAIN SELECT 1; SELECT 2"):
        assert answer(sql).error is not None, sql
