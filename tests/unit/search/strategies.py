"""Random documents and queries over few words, so that they meet often."""

from __future__ import annotations

from hypothesis import strategies as st

from sarit.search.documents import Document
from sarit.search.query import ALL_TEXT, And, Equals, Everything, Exists, Not, Or, Phrase, Prefix, Range, Term

WORDS = st.sampled_from(["a", "ab", "abc", "b", "ba", "c", "東"])
TEXTS = st.sampled_from([ALL_TEXT, "text"])
NUMBERS = st.sampled_from([-1.5, 0.0, 1.0, 2.0, 3.0])
TIMES = st.sampled_from([0, 1, 1000, 1001])

_VALUES = st.lists(st.lists(WORDS, max_size=5), max_size=3)


def _some(name: str, values: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.just({}), st.fixed_dictionaries({name: st.lists(values, min_size=1, max_size=3)}))


DOCUMENTS = st.builds(
    Document,
    st.dictionaries(TEXTS, _VALUES),
    _some("word", WORDS),
    _some("number", NUMBERS),
    _some("time", TIMES),
    _some("flag", st.booleans()),
)


def _range(field: str, values: st.SearchStrategy) -> st.SearchStrategy:
    bound = st.one_of(st.none(), values)
    return st.builds(Range, st.just(field), bound, bound, st.booleans(), st.booleans())


_LEAVES = st.one_of(
    st.just(Everything()),
    st.builds(Term, TEXTS, WORDS),
    st.builds(Phrase, TEXTS, st.lists(WORDS, min_size=2, max_size=3).map(tuple)),
    st.builds(Prefix, st.sampled_from([ALL_TEXT, "text", "word"]), WORDS),
    st.builds(Equals, st.just("word"), WORDS),
    st.builds(Equals, st.just("number"), NUMBERS),
    st.builds(Equals, st.just("flag"), st.booleans()),
    _range("word", WORDS),
    _range("number", NUMBERS),
    _range("time", TIMES),
    st.builds(Exists, st.sampled_from([ALL_TEXT, "text", "word", "number", "time", "flag", "none"])),
)
_PARTS = st.deferred(lambda: st.lists(QUERIES, min_size=2, max_size=3).map(tuple))
QUERIES: st.SearchStrategy = st.deferred(
    lambda: st.one_of(_LEAVES, st.builds(And, _PARTS), st.builds(Or, _PARTS), st.builds(Not, QUERIES))
)
