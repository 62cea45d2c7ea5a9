"""Answers of an index from those of its shards: the merge, pages, and who answers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId, StreamName
from sarit.search.answers import (
    NEWEST,
    OLDEST,
    SCORE,
    Ask,
    Page,
    choose,
    holders,
    merge,
    page_of,
)
from sarit.search.documents import Place
from sarit.search.field_values import MOST_KEY, first_key, order_key
from sarit.search.limits import MAX_FACETS, MAX_SEARCH_HITS, MAX_SEARCH_MS
from sarit.search.mapping import Mapping
from sarit.search.ports import ShardAnswer, ShardHit
from sarit.search.state import Shard

STREAM = StreamName("app", "s")
CUT = StreamCut(STREAM, {SegmentId(0, 0): 100, SegmentId(1, 3): 7})


def answer_of(hits, ask):
    """Return what a shard with these hits would answer, from the definition."""
    low, high = ask.keys()
    found = [hit for hit in hits if low <= hit.order_key < high]
    found.sort(key=lambda hit: hit.order_key, reverse=ask.sort == NEWEST)
    return ShardAnswer(tuple(found[: ask.wanted]), len(found))


SHARDS = st.lists(st.lists(st.integers(0, 12), max_size=12), max_size=5)


@given(SHARDS, st.sampled_from([NEWEST, OLDEST]), st.integers(1, 7))
def test_pages_show_every_hit_once_in_order(shards, sort, limit):
    number = iter(range(1000))
    shards = [[ShardHit(Place(at, next(number)), key) for key in keys] for at, keys in enumerate(shards)]
    ask, shown = Ask("x", sort=sort, limit=limit), []
    total = sum(map(len, shards))
    for _ in range(100):
        merged = merge([answer_of(hits, ask) for hits in shards], sort, ask.wanted, 10)
        page = page_of(ask, merged, CUT, 5)
        assert len(page.hits) == limit or page.next_page is None
        assert page.total == total
        shown += page.hits
        if page.next_page is None:
            break
        token = page.next_page.encode()
        ask = Ask("x", sort=sort, limit=limit, page=Page.decode(token, STREAM))
        assert ask.page == page.next_page == Page(CUT, ask.page.key, ask.page.ties, total, 5, ask.asked)
    assert len(shown) == len(set(shown)) == total
    keys = [hit.order_key for hit in shown]
    assert keys == sorted(keys, reverse=sort == NEWEST)


def test_page_of_another_search_is_refused():
    asked = Ask("x", sort=NEWEST, limit=1)
    page = page_of(asked, ShardAnswer((ShardHit(Place(0, 0), 5), ShardHit(Place(0, 1), 4)), 2), CUT, 5).next_page
    assert Ask("x", limit=3, page=page).check().page == page
    for other in (Ask("y", page=page), Ask("x", sort=OLDEST, page=page)):
        with pytest.raises(Invalid, match="the page is of another query, or in another order"):
            other.check()


def test_best_hits_come_first_on_one_page():
    hits = [ShardHit(Place(0, at), at, float(at % 5)) for at in range(20)]
    ask = Ask("x", sort=SCORE, limit=6)
    merged = merge([ShardAnswer(tuple(hits[:10]), 10), ShardAnswer(tuple(hits[10:]), 10)], SCORE, ask.wanted, 10)
    page = page_of(ask, merged, CUT, 0)
    assert [hit.score for hit in page.hits] == [4.0, 4.0, 4.0, 4.0, 3.0, 3.0]
    assert [hit.order_key for hit in page.hits][:4] == [19, 14, 9, 4]
    assert page.next_page is None
    with pytest.raises(Invalid, match="one page"):
        Ask("x", sort=SCORE, page=Page(CUT, 1, 1, 1, 1, 0)).check()


def test_counts_of_shards_are_added():
    answers = [
        ShardAnswer((), 3, ((0, 1), (60, 2)), {"user": (("a", 2), ("b", 1))}),
        ShardAnswer((), 4, ((60, 3), (120, 1)), {"user": (("b", 4),), "city": (("x", 1),)}),
    ]
    merged = merge(answers, NEWEST, 10, 10)
    assert merged.total == 7
    assert merged.buckets == ((0, 1), (60, 5), (120, 1))
    assert merged.facets == {"user": (("b", 5), ("a", 2)), "city": (("x", 1),)}
    page = page_of(Ask("x", facets=("user", "none"), facet_limit=1), merged, CUT, 0)
    assert page.facets == {"user": (("b", 5),), "none": ()}


def shard(name, first_ms, last_ms, events=1):
    return Shard(name, Mapping(), events, first_ms, last_ms, CUT, ())


def test_shards_are_chosen_by_time():
    shards = [shard("a", 0, 9), shard("b", 10, 19), shard("c", 5, 30), shard("empty", 0, 0, 0)]

    def names(low, high):
        return [one.id for one in choose(shards, low, high)]

    assert names(-MOST_KEY, MOST_KEY) == ["a", "b", "c"]
    assert names(first_key(10), first_key(20)) == ["b", "c"]
    assert names(first_key(9), first_key(10)) == ["a", "c"]
    assert names(first_key(31), MOST_KEY) == []
    assert names(order_key(9, 5), first_key(10)) == ["a", "c"]


@pytest.mark.parametrize(
    "token",
    [
        b"", b"\1", b"x" * 40, Page(CUT, 0, 0, 0, 0, 0).encode()[:-1], Page(CUT, 0, 0, 0, 0, 0).encode() + b"x",
        b"\1" + Page(CUT, 0, 0, 0, 0, 0).encode()[1:], Page(CUT, 0, 1 << 31, 0, 0, 0).encode(),
        Page(StreamCut(StreamName("app", "t"), {SegmentId(0, 0): 1}), 0, 0, 0, 0, 0).encode(),
    ],
)  # fmt: skip
def test_token_that_no_search_returned_is_refused(token):
    with pytest.raises(Invalid):
        Page.decode(token, STREAM)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_page_or_refused(rest):
    token = b"\1" + rest
    try:
        page = Page.decode(token, STREAM)
    except Invalid:
        return
    assert page.cut.stream == STREAM


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sort": "best"}, "newest, oldest or score"),
        ({"limit": -1}, "limit of hits"),
        ({"limit": MAX_SEARCH_HITS + 1}, "limit of hits"),
        ({"bucket_ms": -1}, "width"),
        ({"facets": tuple(map(str, range(MAX_FACETS + 1)))}, "number of facets"),
        ({"facets": ("a", "a")}, "named once"),
        ({"facets": ("",)}, "named once"),
        ({"facets": ("a" * 300,)}, "longer"),
        ({"facet_limit": 0}, "facet"),
        ({"facet_limit": 10_000}, "facet"),
    ],
)
def test_search_beyond_a_bound_is_refused_by_its_name(change, why):
    with pytest.raises(Invalid, match=why):
        Ask("x", **change).check()


def test_time_beyond_all_events_is_refused():
    assert first_key(MAX_SEARCH_MS) < MOST_KEY
    with pytest.raises(Invalid, match="milliseconds"):
        first_key(MAX_SEARCH_MS + 1)


def test_controller_that_goes_moves_only_its_shards():
    members = [(f"host{at}", 9090) for at in range(5)]
    random.Random(1).shuffle(members)
    shards = [f"shard{at}" for at in range(200)]
    first = {name: holders(name, members)[0] for name in shards}
    assert set(first.values()) == set(members)
    left = [one for one in members if one != ("host2", 9090)]
    for name in shards:
        now = holders(name, left)[0]
        assert now == first[name] if first[name] in left else now == holders(name, members)[1]
