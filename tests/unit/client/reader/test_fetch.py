"""Requests of one segment against a store that answers as it likes, in any order."""

import random

import pytest

from sarit.client.reader.fetch import ReadRequest, ReadWindow


@pytest.mark.parametrize("seed", range(400))
def test_all_bytes_come_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(rng.randrange(3000))
    visible, sealed = (len(data), True) if rng.random() < 0.5 else (rng.randrange(len(data) + 1), False)
    limit = rng.choice((None, rng.randrange(len(data) + 1)))
    start = rng.randrange((len(data) if limit is None else limit) + 1)
    spans = ReadWindow(start, limit, rng.choice((7, 64, 500)))
    waiting: list[ReadRequest] = []
    got = b""
    for _ in range(20_000):
        if spans.finished:
            break
        waiting += spans.next_requests()
        assert len(waiting) <= 20
        if rng.random() < 0.05:
            spans.restart()
            waiting.clear()
            continue
        if not sealed and rng.random() < 0.1:
            visible = min(visible + rng.randrange(300), len(data))
            sealed = visible == len(data)
        ready = [span for span in waiting if span.offset < visible or sealed]
        if not ready:
            continue
        span = rng.choice(ready)
        waiting.remove(span)
        if span.offset > visible:
            assert not spans.is_first(span)
            spans.refused(span)
            waiting = [other for other in waiting if other.offset < span.offset]
            continue
        most = max(8, span.length)  # a store gives eight bytes even where fewer are asked for
        answer = data[span.offset : min(span.offset + rng.randrange(1, most + 1), visible)]
        stop = span.offset + len(answer)
        waiting += spans.answered(span, answer, stop == visible and not sealed, stop == visible and sealed)
        got += b"".join(map(bytes, spans.take()))
        assert data[start:].startswith(got)
        assert spans.offset == start + len(got)
    assert spans.finished
    assert got == data[start:limit]


def test_two_requests_outstanding_while_catching_up_and_one_at_the_tail() -> None:
    spans = ReadWindow(0, None, 100)
    (first,) = spans.next_requests()
    assert spans.answered(first, b"x" * 100, False, False) == []
    assert [span.offset for span in spans.next_requests()] == [100]
    spans.take()
    (third,) = spans.next_requests()
    assert third.offset == 200
    spans.answered(third, b"x" * 40, True, False)
    assert spans.next_requests() == []


def test_empty_range_is_finished_at_once() -> None:
    assert ReadWindow(5, 5, 100).finished
    assert ReadWindow(7, 5, 100).finished
    assert not ReadWindow(0, 5, 100).finished
