"""Crash states: subsets are legal and complete, the model accepts exactly the legal contents."""

from __future__ import annotations

import asyncio
import random

from simulation.crashes.container import NestedLoop
from simulation.crashes.model import Model, ModelSegment
from simulation.crashes.states import MAX_EXHAUSTIVE, subsets


def subset_masks(count: int) -> list[tuple[bool, ...]]:
    return [tuple(map(accept, range(count))) for accept in subsets(count, random.Random(1))]


def test_few_changes_yield_all_subsets() -> None:
    for count in range(MAX_EXHAUSTIVE + 1):
        found = subset_masks(count)
        assert len(found) == len(set(found)) == 2**count


def test_many_changes_yield_prefixes_suffixes_and_singles() -> None:
    found = set(subset_masks(9))
    assert {tuple(index < size for index in range(9)) for size in range(10)} <= found
    assert {tuple(index != one for index in range(9)) for one in range(9)} <= found
    assert {tuple(index == one for index in range(9)) for one in range(9)} <= found


def _model() -> Model:
    model = Model([b"a" * 16], [b"k"])
    model.submit(lambda segments: segments.__setitem__("s", ModelSegment()))
    for data in (b"one", b"two"):

        def change(segments, data=data) -> None:
            segments["s"].data += data

        model.submit(change)
    return model


def test_model_accepts_states_between_acknowledged_and_submitted() -> None:
    model = _model()
    assert [model.matching(state) for state in model.states] == [0, 1, 2, 3]
    model.ack(2)
    assert [model.matching(state) for state in model.states] == [None, None, 2, 3]
    torn = {"s": (0, 6, False, b"onetxo", model.states[3]["s"][4], (), False)}
    assert model.matching(torn) is None
    assert "s: [0, 6)" in model.difference(torn)


def test_new_process_drops_operations_not_recovered() -> None:
    model = _model()
    model.go_on_from(2)
    assert model.acked == 2
    assert model.segments["s"].data == b"one"
    model.submit(lambda segments: segments.pop("s"))
    assert model.matching({}) == 3


def test_nested_loop_runs_while_outer_loop_is_blocked() -> None:
    async def main() -> list[int]:
        nested_loop = NestedLoop()
        try:
            return [nested_loop.run(lambda n=n: asyncio.sleep(0, n)) for n in range(3)]
        finally:
            nested_loop.close()

    assert asyncio.run(main()) == [0, 1, 2]
