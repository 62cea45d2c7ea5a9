"""Random histories of a stream: its epochs after splits, merges, replacements, rolls of transactions, promotions."""

from __future__ import annotations

from hypothesis import strategies as st

from sarit.controller.model.epochs import (
    Epoch,
    even_replacement,
    first_epoch,
    next_epoch,
    promoted_epoch,
    rolled_epochs,
    stand_ins,
)
from sarit.core.keyspace import KeyRange


def scaled(current: Epoch, draw) -> Epoch:
    """A run of neighbours is replaced by any number of segments."""
    count = len(current.segments)
    first = draw(st.integers(0, count - 1))
    last = draw(st.integers(first, min(count - 1, first + 3)))
    run = current.segments[first : last + 1]
    parts = draw(st.integers(1, 3))
    ranges = KeyRange(run[0].low, run[-1].high).split_evenly(parts)
    ranges = draw(st.permutations(ranges))
    return next_epoch(current, [s.segment for s in run], ranges, 0)


@st.composite
def histories(draw, most: int = 8) -> tuple[Epoch, ...]:
    epochs = [first_epoch(draw(st.integers(1, 4)), draw(st.integers(0, 5)), 0)]
    for _ in range(draw(st.integers(0, most))):
        what = draw(st.sampled_from(["scale", "scale", "scale", "even", "roll", "promote"]))
        if what == "scale":
            epochs.append(scaled(epochs[-1], draw))
        elif what == "even":
            epochs.append(even_replacement(epochs[-1], draw(st.integers(1, 5)), 0))
        elif what == "promote":
            epochs.append(promoted_epoch(epochs[-1], draw(st.sampled_from([2, 1_000_000])), 0))
        else:
            past = draw(st.sampled_from(epochs))
            if len(stand_ins(epochs[-1], past)) == len(past.segments):
                continue
            epochs += rolled_epochs(epochs[-1], past, 0)
    return tuple(epochs)
