"""Which documents of a batch match, compared with each document by itself."""

from __future__ import annotations

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.search.batch_index import BatchIndex, places, wanted_tokens
from sarit.search.documents import Document
from sarit.search.memory_shards import matches
from sarit.search.query import ALL_TEXT, And, Equals, Phrase, Term
from tests.unit.search.strategies import DOCUMENTS, QUERIES


@settings(max_examples=300, deadline=None)
@given(st.lists(DOCUMENTS, max_size=20), st.lists(QUERIES, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_batch_matches_as_each_document_by_itself(documents, queries, restricted, foreign) -> None:
    wanted = wanted_tokens(queries[:1] if foreign else queries) if restricted else None
    index = BatchIndex(documents, wanted)
    for query in queries:
        expected = [at for at, document in enumerate(documents) if matches(query, document)]
        assert places(index.match(query)) == expected


@given(st.sets(st.integers(0, 3000)))
def test_places_are_the_bits_of_a_set(expected) -> None:
    assert places(sum(1 << place for place in expected)) == sorted(expected)


def test_tokens_are_those_of_the_batch_or_the_wanted_ones_among_them() -> None:
    documents = [Document({ALL_TEXT: [["a", "b"], ["c"]]}), Document({})]
    assert set(BatchIndex(documents).tokens(ALL_TEXT)) == {"a", "b", "c"}
    assert set(BatchIndex(documents, {ALL_TEXT: {"c", "d"}}).tokens(ALL_TEXT)) == {"c"}
    assert set(BatchIndex(documents, {"x": {"c"}}).tokens(ALL_TEXT)) == set()


def test_keywords_are_those_of_the_batch() -> None:
    documents = [Document({}, {"level": ["A", "B"]}), Document({}, {"level": ["B"]}), Document({}, {"x": ["C"]})]
    index = BatchIndex(documents)
    assert set(index.keywords("level")) == {"A", "B"}
    assert places(index.match(Equals("level", "B"))) == [0, 1]


def test_a_phrase_of_repetitions_takes_no_longer_than_its_text() -> None:
    document = Document({ALL_TEXT: [["a"] * 20_000 + ["b"]]})
    index = BatchIndex([document] * 50)
    began = time.monotonic()
    assert index.match(Phrase(ALL_TEXT, ("b", *["a"] * 254, "b"))) == 0
    assert index.match(Phrase(ALL_TEXT, (*["a"] * 255, "b"))).bit_count() == 50
    assert time.monotonic() - began < 10  # on a busy machine; token by token it would be minutes


def test_ten_thousand_queries_on_ten_thousand_documents_take_about_a_second() -> None:
    chosen = random.Random(1)
    words = [f"w{number}" for number in range(5000)]
    documents = [Document({ALL_TEXT: [chosen.choices(words, k=15)]}) for _ in range(10_000)]
    queries = [And(tuple(Term(ALL_TEXT, word) for word in chosen.sample(words, 3))) for _ in range(10_000)]
    began = time.process_time()
    index = BatchIndex(documents, wanted_tokens(queries))
    found = [index.match(query) for query in queries]
    spent = time.process_time() - began
    print(f"{spent:.3f} s")
    assert spent < 5  # it is 0.2 s; on a machine under test a multiple of it
    assert any(found) or len(found) == 10_000
