"""Texts of queries, as callers send them to searches and to continuous queries."""

from __future__ import annotations

import pytest

from sarit.core.errors import Invalid
from sarit.process.search.messages import text_of
from sarit.search.limits import MAX_QUERY_CHARACTERS


@pytest.mark.parametrize("text", ["", "a", "東京", "😀" * MAX_QUERY_CHARACTERS])
def test_text_within_the_bound_is_returned(text) -> None:
    assert text_of(text.encode()) == text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"\xff", "text in UTF-8"), (b"a\xed\xa0\x80", "text in UTF-8"),
        (b"a" * (MAX_QUERY_CHARACTERS + 1), "at most 4096 characters"),
        (b"\xff" * (MAX_QUERY_CHARACTERS * 4 + 1), "at most 4096 characters"),
    ],
)  # fmt: skip
def test_other_bytes_are_refused(given, why) -> None:
    with pytest.raises(Invalid, match=why):
        text_of(given)
