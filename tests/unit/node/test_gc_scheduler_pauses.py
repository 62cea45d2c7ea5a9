"""The pause of one garbage collection while the memory of a node grows."""

import gc
import weakref

from sarit.core.limits import GC_THRESHOLDS


class Held:
    """Something that could be in a cycle."""


def test_collections_traverse_few_objects():
    collected: list[int] = []

    def collect(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collected.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.callbacks.append(collect)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        held = [Held() for _ in range(20 * GC_THRESHOLDS[0])]
        assert len(collected) >= 15
        assert max(collected) < 2.5 * GC_THRESHOLDS[0]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collect)
        gc.unfreeze()
    assert held


def test_cyclic_garbage_is_collected():
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        one = Held()
        one.itself = one
        gone = weakref.ref(one)
        del one
        held = [Held() for _ in range(4 * GC_THRESHOLDS[0])]
        assert gone() is None
    finally:
        gc.set_threshold(*before)
    assert held
