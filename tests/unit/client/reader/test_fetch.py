"""Requests of one segment against a store that answers anything, in any order."""

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
    window = ReadWindow(start, limit, rng.choice((7, 64, 500)))
    waiting: list[ReadRequest] = []
    got = b""
    for _ in range(20_000):
        if window.finished:
            break
        waiting += window.next_requests()
        assert len(waiting) <= 20
        if rng.random() < 0.05:
            window.restart()
            waiting.clear()
            continue
        if not sealed and rng.random() < 0.1:
            visible = min(visible + rng.randrange(300), len(data))
            sealed = visible == len(data)
        ready = [request for request in waiting if request.offset < visible or sealed]
        if not ready:
            continue
        request = rng.choice(ready)
        waiting.remove(request)
        if request.offset > visible:
            assert not window.is_first(request)
            window.refused(request)
            waiting = [other for other in waiting if other.offset < request.offset]
            continue
        most = max(8, request.length)  # a store gives eight bytes even where fewer are asked for
        answer = data[request.offset : min(request.offset + rng.randrange(1, most + 1), visible)]
        stop = request.offset + len(answer)
        waiting += window.answered(request, answer, stop == visible and not sealed, stop == visible and sealed)
        got += b"".join(map(bytes, window.take()))
        assert data[start:].startswith(got)
        assert window.offset == start + len(got)
    assert window.finished
    assert got == data[start:limit]


def test_two_requests_outstanding_while_catching_up_and_one_at_the_tail() -> None:
    window = ReadWindow(0, None, 100)
    (first,) = window.next_requests()
    assert window.answered(first, b"x" * 100, False, False) == []
    assert [request.offset for request in window.next_requests()] == [100]
    window.take()
    (third,) = window.next_requests()
    assert third.offset == 200
    window.answered(third, b"x" * 40, True, False)
    assert window.next_requests() == []


def test_empty_range_is_finished_at_once() -> None:
    assert ReadWindow(5, 5, 100).finished
    assert ReadWindow(7, 5, 100).finished
    assert not ReadWindow(0, 5, 100).finished
