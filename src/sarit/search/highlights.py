"""The parts of a text that a query matches, for people who look at hits.  Pure.

A query says which words it looks for; the words of a text are those that the analyzer finds.  Fields are ignored: what
is shown of an event is its text, where a word stands in one field or in another.  What a query excludes, and its ranges
of numbers and times, mark nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from sarit.search.analyzer import WORD, lowered
from sarit.search.limits import MAX_HIGHLIGHTS, MAX_TOKEN_CHARACTERS
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.query import And, Equals, Or, Phrase, Prefix, Term
from sarit.search.query_parser import bind, fields_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sarit.search.query import Query


@dataclass(frozen=True, slots=True)
class Marks:
    """The words that a query looks for: single ones, runs of several, and beginnings of words."""

    words: frozenset[str] = frozenset()
    phrases: tuple[tuple[str, ...], ...] = ()
    beginnings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.phrases or self.beginnings)

    def document(self) -> dict[str, object]:
        """Return the marks as JSON has them."""
        return {
            "words": sorted(self.words), "phrases": [list(phrase) for phrase in self.phrases],
            "beginnings": list(self.beginnings),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a text, in the form of the analyzer, and where it stands."""

    token: str
    begin: int
    end: int


def marks_of(query: Query) -> Marks:
    """Return what a query marks in the events that match it."""
    words: set[str] = set()
    phrases: set[tuple[str, ...]] = set()
    beginnings: set[str] = set()
    for part in _positive(query):
        if isinstance(part, Term):
            words.add(part.token)
        elif isinstance(part, Prefix):
            # The beginning of a keyword may have several words, of which the last one goes on.
            *before, last = [word.token for word in _words(part.beginning)] or [part.beginning]
            words.update(before)
            beginnings.add(last)
        elif isinstance(part, Phrase):
            phrases.add(part.tokens)
        elif isinstance(part.value, str):
            value = tuple(word.token for word in _words(part.value))
            if len(value) > 1:
                phrases.add(value)
            else:
                words.update(value)
    return Marks(frozenset(words), tuple(sorted(phrases)), tuple(sorted(beginnings)))


def names_fields(text: str) -> bool:
    """Return whether the text of a query names fields: what else it has marks the same, whatever fields there are.

    Raises Invalid."""
    return bool(fields_of(parse(text)))


def marks_of_text(text: str, fields: Iterable[tuple[str, str]]) -> Marks:
    """Return what the text of a query marks; `fields`: paths with their kinds.  Raises Invalid."""
    mapping = Mapping(tuple(Field(path, Kind(kind)) for path, kind in fields))
    return marks_of(bind(parse(text), mapping, unknown="nothing"))


def spans(text: str, marks: Marks) -> list[tuple[int, int]]:
    """Return where a text matches: (begin, end) in characters, ascending, without overlaps, MAX_HIGHLIGHTS at most."""
    if not marks:
        return []
    words = list(_words(text))
    by_first: dict[str, list[tuple[str, ...]]] = {}
    for phrase in marks.phrases:
        by_first.setdefault(phrase[0], []).append(phrase)
    found: list[tuple[int, int]] = []
    covered = 0  # words before it are in a span
    for at, word in enumerate(words):
        count = max(
            (len(phrase) for phrase in by_first.get(word.token, ()) if _stands(phrase, words, at)),
            default=int(word.token in marks.words or word.token.startswith(marks.beginnings)),
        )
        if not count:
            continue
        begin, end = (word.begin, words[at + count - 1].end)
        if at < covered:  # phrases that overlap are one span
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif len(found) == MAX_HIGHLIGHTS:
            break
        else:
            found.append((begin, end))
        covered = max(covered, at + count)
    return found


def marked(text: str, where: Sequence[tuple[int, int]], before: str, after: str) -> str:
    """Return a text with something before and after each span, as the codes of a terminal."""
    parts, done = [], 0
    for begin, end in where:
        parts += [text[done:begin], before, text[begin:end], after]
        done = end
    return "".join([*parts, text[done:]])


def _positive(query: Query) -> Iterator[Term | Phrase | Prefix | Equals]:
    """Yield the parts of a query that its matches have."""
    left = [query]
    while left:
        part = left.pop()
        if isinstance(part, And | Or):
            left += part.parts
        elif isinstance(part, Term | Phrase | Prefix | Equals):
            yield part


def _stands(phrase: tuple[str, ...], words: Sequence[_Word], at: int) -> bool:
    return at + len(phrase) <= len(words) and all(
        words[at + step].token == token for step, token in enumerate(phrase)
    )  # fmt: skip


def _words(text: str) -> Iterator[_Word]:
    lower = lowered(text)
    # A few letters become two, as the dotted capital I: places in the lowered text are not those in the text.
    origin = list(accumulate((len(letter.lower()) for letter in text), initial=0)) if len(lower) != len(text) else None
    places = None if origin is None else {place: at for at, place in enumerate(origin)}
    for found in WORD.finditer(lower):
        begin, end = found.span()
        if places is not None:
            begin, end = _place(places, begin, -1), _place(places, end, 1)
        yield _Word(found.group()[:MAX_TOKEN_CHARACTERS], begin, end)


def _place(places: dict[int, int], at: int, step: int) -> int:
    """Return the place in a text of a place in the lowered text: of a place within a letter, that of its border."""
    while at not in places:
        at += step
    return places[at]
