"""Which names an error names: all of a few, and of many the nearest."""

import pytest

from sarit.core.nearest_names import MAX_NAMED, nearest


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "there is a"),
        (["b", "a"], "there are a, b"),
        ([f"event-{number}" for number in range(MAX_NAMED)], "there are event-0, event-1, event-2, event-3, event-4"),
    ],
)
def test_a_few_are_named_in_order(names, text):
    assert nearest("event-3", names) == text


def test_of_many_the_nearest_are_named_first_and_the_others_counted():
    names = [f"stream-{number}" for number in range(1998)] + ["orders", "order"]
    said = nearest("ordres", names)
    assert said.startswith("there are orders, order, ")
    assert said.endswith(" and 1,995 more")
    assert said.count(",") == MAX_NAMED


def test_long_names_are_compared_by_their_beginnings():
    # Two of 200 letters take as long as ten thousand short ones, and a process serves nobody meanwhile.
    begin = "a" * 40
    names = [f"{begin}{end}" for end in "bcdefg"]
    assert nearest(f"{begin}g", names) == f"there are {', '.join(names[:5])} and 1 more"
