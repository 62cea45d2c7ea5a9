"""Events that cannot match a query, by their bytes alone: most of a stream, when a rare word is searched for.  Pure.

A word that every match has is in the bytes of the event, too, if both are ASCII and the event has no escapes by number
(`\\u0061`).  Numbers are written in events in other ways than they are searched in: only words with a letter count that
no number has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.search.query import And, Equals, Phrase, Prefix, Term

if TYPE_CHECKING:
    from sarit.search.query import Query

# Letters of 1e+16, inf and nan.
_LETTERS_OF_NUMBERS: Final = frozenset("einfa")
_MOST_WORDS: Final = 4


class Prefilter:
    """Says of events whether they may match a query."""

    def __init__(self, query: Query) -> None:
        words = {word for word in _required(query) if _counts(word)}
        # The longest ones are the rarest.
        self._words = [word.encode() for word in sorted(words, key=len, reverse=True)[:_MOST_WORDS]]

    def __repr__(self) -> str:
        return f"<Prefilter, {len(self._words)} words>"

    def may_match(self, event: bytes) -> bool:
        """Return False of an event that does not match, whatever its fields are."""
        if not self._words or not event.isascii():
            return True
        lower = event.lower()
        return b"\\u" in lower or all(word in lower for word in self._words)


def _required(query: Query) -> set[str]:
    """Return words that every match has."""
    if isinstance(query, And):
        return set().union(*map(_required, query.parts))
    if isinstance(query, Term):
        return {query.token}
    if isinstance(query, Phrase):
        return set(query.tokens)
    if isinstance(query, Prefix):
        return {query.beginning.lower()}
    return {query.value.lower()} if isinstance(query, Equals) and isinstance(query.value, str) else set()


def _counts(word: str) -> bool:
    return (
        word.isascii()
        and word.isalnum()
        and any(letter.isalpha() and letter not in _LETTERS_OF_NUMBERS for letter in word)
    )


__all__ = ["Prefilter"]
