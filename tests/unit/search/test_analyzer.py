"""Tokens are what the definition says, however they are found."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sarit.search.analyzer import WORD, lowered, tokens
from sarit.search.limits import MAX_TOKEN_CHARACTERS

ASCII = st.text(st.characters(max_codepoint=127), max_size=300)
# The sign of Kelvin is an ASCII letter in small; the others are letters, spaces and no words of their own.
ANY = st.text(st.characters(max_codepoint=0x3FF) | st.sampled_from("\u212a\u0130ς東か한_ \x85\xa0aB9"), max_size=300)
LONG = st.sampled_from(["x", "é", "X9"]).map(lambda part: part * 200 + " end")


def plainly(text: str, most: int) -> list[str]:
    lower = lowered(text)
    pattern = re.compile("[a-z0-9]+") if lower.isascii() else WORD
    return [token[:MAX_TOKEN_CHARACTERS] for token in pattern.findall(lower)[:most]]


@given(ASCII | ANY | LONG, st.integers(1, 60))
def test_tokens_are_runs_of_letters_and_digits(text, most):
    assert tokens(text, most) == plainly(text, most)
    assert tokens(text) == plainly(text, len(text))


def test_every_character_of_ascii_is_a_letter_a_digit_or_between_tokens():
    for code in range(128):
        assert tokens(f"A{chr(code)}b") == plainly(f"A{chr(code)}b", 3), code
