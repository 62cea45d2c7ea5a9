"""Memory of large reads: it is reused, but never while a view of it exists."""

import threading

import pytest

from sarit.env.limits import READ_BLOCK_BYTES
from sarit.env.real_memory import ReadMemory

PAGE = 4096


def test_memory_is_reused_after_last_reference():
    memory = ReadMemory()
    taken = memory.take(READ_BLOCK_BYTES)
    taken[:5] = b"first"
    del taken
    assert bytes(memory.take(READ_BLOCK_BYTES - PAGE)[:5]) == b"first"
    assert bytes(memory.take(READ_BLOCK_BYTES)[:5]) == b"first"


def test_slice_of_a_slice_keeps_memory():
    memory = ReadMemory()
    taken = memory.take(READ_BLOCK_BYTES)
    taken[10:15] = b"first"
    held = taken[8:20][2:7].toreadonly()
    del taken
    others = [memory.take(READ_BLOCK_BYTES) for _ in range(20)]
    for other in others:
        other[10:15] = b"other"
    assert held == b"first"
    del held
    assert bytes(memory.take(READ_BLOCK_BYTES)[10:15]) == b"first"


@pytest.mark.parametrize("size", [PAGE, READ_BLOCK_BYTES // 2, READ_BLOCK_BYTES + PAGE])
def test_memory_of_another_size_is_not_pooled(size):
    memory = ReadMemory()
    taken = memory.take(size)
    assert len(taken) == size
    taken[:5] = b"first"
    del taken
    assert not memory.spares
    assert bytes(memory.take(size)[:5]) == bytes(5)


def test_old_outcomes_are_pruned_when_many_transactions_end():
    memory = ReadMemory()
    taken = [memory.take(READ_BLOCK_BYTES) for _ in range(20)]
    assert not memory.spares
    del taken
    assert 0 < memory.spares < 10


def test_threads_never_share_it():
    memory = ReadMemory()
    wrong = []

    def work(mark):
        held = []
        for turn in range(300):
            view = memory.take(READ_BLOCK_BYTES)
            view[:2] = bytes((mark, turn % 256))
            held.append((view[:2], bytes((mark, turn % 256))))
            del view
            if len(held) > 3:
                seen, wanted = held.pop(0)
                if seen != wanted:
                    wrong.append((seen.tobytes(), wanted))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
