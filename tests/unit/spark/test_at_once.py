"""A driver asks about its streams at the same time."""

from __future__ import annotations

import threading

import pytest

from sarit.core.errors import NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.spark import client
from sarit.spark.options import Target
from sarit.spark.source.admission import Limits
from sarit.spark.source.options import parse_read
from sarit.spark.source.planner import QueryPlanner
from tests.limits import HANG_SECONDS
from tests.unit.spark.fake_stream import A, FakeSource, FakeStream


class Closed:
    def close(self):
        """There is nothing to release."""


@pytest.fixture
def source(monkeypatch):
    monkeypatch.setattr(client, "connect", lambda _: Closed())
    made = client.ConnectedSource(Target("127.0.0.1:1"))
    yield made
    made.close()


def test_calls_run_at_the_same_time_and_answer_in_order(source):
    together = threading.Barrier(3)
    found = source.at_once([lambda n=n: (together.wait(HANG_SECONDS), n)[1] for n in range(3)])
    assert found == [0, 1, 2]
    assert source.at_once([]) == []
    assert source.at_once([threading.current_thread]) == [threading.main_thread()]


def test_first_error_in_order_is_raised_when_all_have_ended(source):
    ended = threading.Event()

    def late():
        ended.set()
        raise Unavailable("the second")

    def first():
        assert ended.wait(HANG_SECONDS)
        raise NotFound("the first")

    with pytest.raises(NotFound, match="the first"):
        source.at_once([first, late, lambda: None])


def test_micro_batch_of_many_streams_asks_them_all_at_once():
    streams = [FakeStream(StreamName("s", f"t{number}")) for number in range(5)]
    for stream in streams:
        stream.events[A] = [10]
    asked = []

    class Counting(FakeSource):
        def at_once(self, calls):
            asked.append(len(calls))
            return super().at_once(calls)

    planner = QueryPlanner(parse_read({"streamPattern": "s/t.*"}), Counting(*streams))
    start = planner.initial()
    end = planner.latest(start, Limits())
    assert len(planner.ranges(start, end)) == 5
    planner.prepare_available_now()
    assert asked == [5] * 5  # creation ids once, cuts, reaches, ranges, cuts
