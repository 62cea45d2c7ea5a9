"""Texts are cut to a bounded length, and say how much is left out."""

import pytest

from sarit.core.texts import cut_text


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("", 30, ""),
        ("x" * 30, 30, "x" * 30),
        ("x" * 31, 30, "x" * 6 + "... (25 characters more)"),
        ("x" * 1000, 30, "x" * 4 + "... (996 characters more)"),
        ("\n" * 16, 30, None),
        ("a" + "\n" * 14, 30, "a" + "\n" * 14),
        ("x" + "\n" * 1000, 40, "x" + "\n" * 6 + "... (994 characters more)"),
    ],
)
def test_text_and_what_says_that_it_is_cut_are_no_longer_than_allowed(text, most, cut):
    def width(char: str) -> int:
        return 2 if char == "\n" else 1

    found = cut_text(text, most, width)
    assert sum(map(width, found)) <= most
    assert cut is None or found == cut
    if "\n" not in text:
        assert cut_text(text, most) == found
