"""One suite for every engine of shards: what indexers and searchers rely on."""

import random

import pytest

from sarit.core.errors import Corrupt, Invalid, Unavailable
from sarit.env.real import real_env
from sarit.search import memory_shards
from sarit.search.documents import Document, Place
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.memory_shards import MemoryShards, matches
from sarit.search.ports import Indexed, ShardQuestion
from sarit.search.query import (
    ALL_TEXT,
    And,
    Equals,
    Everything,
    Exists,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    Term,
)
from sarit.search.tantivy_shards import TantivyShards

MAPPING = Mapping(
    (
        Field("title", Kind.TEXT),
        Field("user.id", Kind.KEYWORD),
        Field("amount", Kind.NUMBER),
        Field("at", Kind.TIME),
        Field("paid", Kind.BOOLEAN),
    )
)
EVER = (-(1 << 63), 1 << 63)


@pytest.fixture(params=["tantivy", "memory"])
def engine(request):
    return TantivyShards() if request.param == "tantivy" else MemoryShards(real_env().files)


def document(text: str, **fields) -> Document:
    values = {f"{kind}s": {} for kind in ("keyword", "number", "time", "boolean")}
    kinds = {
        "user": ("keywords", "user.id"),
        "amount": ("numbers", "amount"),
        "at": ("times", "at"),
        "paid": ("booleans", "paid"),
    }
    for name, value in fields.items():
        if name in kinds:
            kind, path = kinds[name]
            values[kind][path] = value if isinstance(value, list) else [value]
    texts = {ALL_TEXT: [part.split() for part in text.split("|")]}
    if "title" in fields:
        texts["title"] = [fields["title"].split()]
    return Document(texts, **values)


def indexed(at: int, found: Document, ms: int | None = None) -> Indexed:
    return Indexed(Place(1 << 40, at), ((1_700_000_000_000 + at if ms is None else ms) << 20) + at % 1000, found)


class Stored:
    """What was committed, by name, as blobs would have it."""

    def __init__(self, directory) -> None:
        self.directory, self.contents, self.names, self.opened = directory, {}, [], 0

    def take(self, writer) -> dict:
        names, new = writer.commit(frozenset(self.contents))
        assert not new.keys() & self.contents.keys()
        self.contents |= {name: bytes(content) for name, content in new.items()}
        self.names = names
        return new

    def there(self, names=None):
        self.opened += 1
        place = self.directory / f"copy-{self.opened}"
        place.mkdir()
        for name in self.names if names is None else names:
            (place / name).write_bytes(self.contents[name])
        return place

    def reader(self, engine, names=None):
        return engine.open(self.there(names), MAPPING)


@pytest.fixture
def stored(tmp_path):
    return Stored(tmp_path)


def shard(engine, stored, tmp_path, documents, mapping=MAPPING):
    writer = engine.create(tmp_path / "shard", mapping)
    writer.add([indexed(at, one) for at, one in enumerate(documents)])
    stored.take(writer)
    writer.close()
    return engine.open(stored.there(), mapping)


def offsets(reader, query, **asked):
    asked = {"low": EVER[0], "high": EVER[1], "sort": "oldest", "limit": 1000} | asked
    answer = reader.search(ShardQuestion(query, **asked))
    found = [hit.place.offset for hit in answer.hits]
    assert answer.total >= len(found)
    return found


DOCUMENTS = [
    document("payment failed for alice", title="payment failed", user="alice", amount=12.5, at=5, paid=False),
    document("payment made|failed before", title="payment made", user="bob", amount=-0.0, at=-7, paid=True),
    document("alice and bob", user=["alice", "bob"], amount=[1, 100.25], at=[1 << 41, 3]),
    document("nothing", paid=True, user="Ålice Bob"),
    document(""),
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Everything(), [0, 1, 2, 3, 4]),
        (Term(ALL_TEXT, "failed"), [0, 1]),
        (Term("title", "failed"), [0]),
        (Term("elsewhere", "failed"), []),
        (Phrase(ALL_TEXT, ("payment", "failed")), [0]),
        (Phrase(ALL_TEXT, ("made", "failed")), []),  # the end of one text and the begin of another
        (Phrase(ALL_TEXT, ("failed", "before")), [1]),
        (Prefix(ALL_TEXT, "no"), [3]),
        (Prefix(ALL_TEXT, "pay"), [0, 1]),
        (Prefix(ALL_TEXT, "zz"), []),
        (Prefix("user.id", "al"), [0, 2]),
        (Equals("user.id", "alice"), [0, 2]),
        (Equals("user.id", "Ålice Bob"), [3]),
        (Equals("user.id", "Ålice"), []),
        (Equals("amount", 12.5), [0]),
        (Equals("amount", 0.0), [1]),
        (Equals("amount", 1), [2]),
        (Equals("amount", "1"), []),
        (Equals("at", -7), [1]),
        (Equals("paid", True), [1, 3]),
        (Equals("paid", False), [0]),
        (Range("amount", 1.0, 12.5), [0, 2]),
        (Range("amount", 1.0, 12.5, with_low=False, with_high=False), []),
        (Range("amount", None, 0.0), [1]),
        (Range("amount", 100, None), [2]),
        (Range("at", 3, 5), [0, 2]),
        (Range("at", 3, 5, with_high=False), [2]),
        (Range("user.id", "alice", "bob"), [0, 1, 2]),
        (Range("user.id", "alice", "bob", with_low=False), [1, 2]),
        (Range("user.id", "b", None), [1, 2, 3]),
        (Range("user.id", None, "b"), [0, 2]),
        (Range("amount", None, None), [0, 1, 2]),
        (Exists("title"), [0, 1]),
        (Exists("user.id"), [0, 1, 2, 3]),
        (Exists("amount"), [0, 1, 2]),
        (Exists("paid"), [0, 1, 3]),
        (And((Term(ALL_TEXT, "alice"), Term(ALL_TEXT, "bob"))), [2]),
        (And((Term(ALL_TEXT, "alice"), Not(Term(ALL_TEXT, "bob")))), [0]),
        (And((Everything(), Not(Term(ALL_TEXT, "alice")))), [1, 3, 4]),
        (Not(Term(ALL_TEXT, "alice")), [1, 3, 4]),
        (Or((Term(ALL_TEXT, "nothing"), Equals("user.id", "bob"))), [1, 2, 3]),
        (And((Not(Exists("amount")), Not(Equals("paid", True)))), [4]),
        (Not(Not(Term(ALL_TEXT, "failed"))), [0, 1]),
        (Or((Not(Everything()), Term(ALL_TEXT, "nothing"))), [3]),
    ],
)
def test_queries_find_what_they_say(engine, stored, tmp_path, query, expected):
    reader = shard(engine, stored, tmp_path, DOCUMENTS)
    assert offsets(reader, query) == expected
    # The scan says the same.
    assert [at for at, one in enumerate(DOCUMENTS) if matches(query, one)] == expected
    reader.close()


def test_random_queries_agree_with_their_definition(engine, stored, tmp_path):
    random.seed(4)
    words = ["a", "ab", "b", "c", "ca"]

    def some() -> Document:
        text = "|".join(" ".join(random.choices(words, k=random.randrange(4))) for _ in range(random.randrange(3)))
        fields = {"user": random.choices(words, k=random.randrange(3)), "paid": random.choices([True, False], k=1)}
        return document(
            text, title=random.choice(words), amount=[random.randrange(4) / 2], at=random.randrange(5), **fields
        )

    def query(depth: int):
        match random.randrange(11 if depth else 8):
            case 0:
                return Term(random.choice([ALL_TEXT, "title"]), random.choice(words))
            case 1:
                return Phrase(ALL_TEXT, tuple(random.choices(words, k=random.choice([2, 3]))))
            case 2:
                return Prefix(random.choice([ALL_TEXT, "user.id"]), random.choice(words))
            case 3:
                return Equals("user.id", random.choice(words))
            case 4:
                low, high = random.choice([None, 0.5]), random.choice([None, 1.0])
                return Range("amount", low, high, random.random() < 0.5, random.random() < 0.5)
            case 5:
                low, high = random.choice([None, "a"]), random.choice([None, "c"])
                return Range("user.id", low, high, random.random() < 0.5, random.random() < 0.5)
            case 6:
                return Equals("paid", random.random() < 0.5)
            case 7:
                return Exists(random.choice([ALL_TEXT, "user.id", "title"]))
            case 8:
                return Not(query(depth - 1))
            case choice:
                parts = tuple(query(depth - 1) for _ in range(random.choice([2, 3])))
                return And(parts) if choice == 9 else Or(parts)

    documents = [some() for _ in range(60)]
    reader = shard(engine, stored, tmp_path, documents)
    for _ in range(300):
        asked = query(3)
        assert offsets(reader, asked) == [at for at, one in enumerate(documents) if matches(asked, one)], asked


def test_hits_are_sorted_and_limited(engine, stored, tmp_path):
    documents = [document("x " * (at % 3 + 1)) for at in range(30)]
    reader = shard(engine, stored, tmp_path, documents)
    assert offsets(reader, Everything(), limit=3) == [0, 1, 2]
    assert offsets(reader, Everything(), sort="newest", limit=3) == [29, 28, 27]
    key = indexed(10, documents[10]).order_key
    assert offsets(reader, Everything(), low=key, high=key + 1) == [10]
    assert offsets(reader, Everything(), low=key, limit=2) == [10, 11]
    assert offsets(reader, Everything(), sort="newest", high=key, limit=2) == [9, 8]
    assert all(at % 3 == 2 for at in offsets(reader, Term(ALL_TEXT, "x"), sort="score", limit=5))
    answer = reader.search(ShardQuestion(Everything(), *EVER, limit=0))
    assert (answer.hits, answer.total, answer.buckets, answer.facets) == ((), 30, (), None)
    hit = reader.search(ShardQuestion(Everything(), *EVER, limit=1)).hits[0]
    assert (hit.place, hit.order_key) == (Place(1 << 40, 29), indexed(29, documents[29]).order_key)


def test_first_hits_are_the_same_however_events_lie_in_time(engine, stored, tmp_path, monkeypatch):
    """Of words that are frequent, hits are sought among the newest or oldest events first, and counts are read."""
    monkeypatch.setattr("sarit.search.tantivy_shards.MIN_WINDOWED_HITS", 2)
    random.seed(8)
    begin = 1_700_000_000_000
    times = [begin + random.choice([at, 5 * at, 3_600_000 + at % 7, 90_000_000]) for at in range(298)]
    times += [begin - 90_000_000, begin + 200_000_000]  # alone at either end
    words = ["all", "all old", "all new"]
    documents = [document(words[0 if at % 5 else 1 + (times[at] > begin + 3_000_000)]) for at in range(300)]
    events = [indexed(at, documents[at], times[at]) for at in range(300)]
    events = [Indexed(one.place, (one.order_key >> 20 << 20) + at, one.document) for at, one in enumerate(events)]
    writer = engine.create(tmp_path / "shard", MAPPING)
    for at in range(0, 300, 60):
        writer.add(events[at : at + 60])
        stored.take(writer)
    writer.close()
    reader = stored.reader(engine)
    ends = (min(times) << 20, (max(times) + 1) << 20)
    for _ in range(300):
        query = random.choice([Everything(), *(Term(ALL_TEXT, word) for word in ("all", "old", "new", "no"))])
        sort, limit = random.choice(["newest", "oldest", "score"]), random.choice([0, 1, 7, 100, 1000])
        low, high = random.choice([EVER, EVER, ends, (events[9].order_key, EVER[1]), (ends[0], events[7].order_key)])
        keys = random.choice([None, ends, ends, (ends[0] - 5, EVER[1])])
        bucket_ms = random.choice([0, 0, 60_000])
        spans = random.choice([None, None, {1 << 40: (5, 250)}])
        answer = reader.search(ShardQuestion(query, low, high, sort, limit, bucket_ms, spans=spans, keys=keys))
        matching = [
            one
            for at, one in enumerate(events)
            if low <= one.order_key < high and matches(query, one.document) and (spans is None or 5 <= at < 250)
        ]
        assert answer.total == len(matching)
        assert not bucket_ms or sum(count for _, count in answer.buckets) == len(matching)
        found = [hit.order_key for hit in answer.hits]
        if sort == "score":
            assert len(found) == min(limit, len(matching))
            assert set(found) <= {one.order_key for one in matching}
        else:
            assert found == sorted((one.order_key for one in matching), reverse=sort == "newest")[:limit]


def test_search_that_is_given_up_ends_between_its_pieces(engine, stored, tmp_path):
    reader = shard(engine, stored, tmp_path, DOCUMENTS)
    query = Or((Term(ALL_TEXT, "payment"), Prefix(ALL_TEXT, "no")))
    question = ShardQuestion(query, *EVER, bucket_ms=1 << 30, facets=("user.id", "title"))
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == last:
            raise Unavailable("nobody waits")

    last = 0
    whole = reader.search(question, check)
    assert whole == reader.search(question)
    pieces = checks
    assert pieces >= (7 if isinstance(engine, TantivyShards) else 1)
    for last in range(1, pieces + 1):
        checks = 0
        with pytest.raises(Unavailable, match="nobody waits"):
            reader.search(question, check)
        assert checks == last


def test_histogram_and_facets_count_all_that_matches(engine, stored, tmp_path):
    writer = engine.create(tmp_path / "shard", MAPPING)
    times = [0, 59_999, 60_000, 180_000, -1]
    users = ["b", ["a", "b"], "a", "a", "c"]
    writer.add([indexed(at, document("x", user=users[at]), ms) for at, ms in enumerate(times)])
    stored.take(writer)
    reader = stored.reader(engine)
    answer = reader.search(ShardQuestion(Everything(), *EVER, limit=1, bucket_ms=60_000, facets=("user.id",)))
    assert answer.buckets == ((-60_000, 1), (0, 2), (60_000, 1), (180_000, 1))
    assert answer.facets == {"user.id": (("a", 3), ("b", 2), ("c", 1))}
    answer = reader.search(
        ShardQuestion(
            Not(Equals("user.id", "c")), *EVER, bucket_ms=60_000, facets=("user.id", "title", "no"), facet_limit=1
        )
    )
    assert answer.buckets == ((0, 2), (60_000, 1), (180_000, 1))
    assert answer.facets == {"user.id": (("a", 3),), "title": (), "no": ()}


def test_only_events_of_the_spans_count(engine, stored, tmp_path):
    writer = engine.create(tmp_path / "shard", MAPPING)
    for segment in (0, 1 << 32, (1 << 40) + 7):
        writer.add(
            [Indexed(Place(segment, at), (segment + at) << 20, document("x", user=str(segment))) for at in range(10)]
        )
    stored.take(writer)
    reader = stored.reader(engine)

    def found(spans):
        asked = ShardQuestion(Everything(), *EVER, "oldest", 100, 1, ("user.id",), spans=spans)
        answer = reader.search(asked)
        assert answer.total == len(answer.hits) == sum(count for _, count in answer.buckets)
        assert {value: count for value, count in answer.facets["user.id"]} == {
            str(segment): sum(hit.place.segment == segment for hit in answer.hits)
            for segment in {hit.place.segment for hit in answer.hits}
        }
        return [(hit.place.segment, hit.place.offset) for hit in answer.hits]

    assert found({}) == []
    assert found({0: (3, 5)}) == [(0, 3), (0, 4)]
    last = (1 << 40) + 7
    assert found({0: (9, (1 << 63) - 1), last: (0, 2), 5: (0, 9)}) == [(0, 9), (last, 0), (last, 1)]
    assert len(found(None)) == 30


def test_histogram_of_too_many_buckets_is_refused(engine, stored, tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.search.tantivy_shards.MAX_HISTOGRAM_BUCKETS", 5)
    monkeypatch.setattr(memory_shards, "MAX_HISTOGRAM_BUCKETS", 5)
    reader = shard(engine, stored, tmp_path, [document("x")] * 10)
    with pytest.raises(Invalid, match="more than 5 buckets"):
        reader.search(ShardQuestion(Everything(), *EVER, bucket_ms=1))


def test_prefix_of_too_many_words_is_refused(engine, stored, tmp_path, monkeypatch):
    monkeypatch.setattr("sarit.search.tantivy_shards.MAX_PREFIX_TERMS", 5)
    monkeypatch.setattr(memory_shards, "MAX_PREFIX_TERMS", 5)
    reader = shard(engine, stored, tmp_path, [document(f"aa{at}") for at in range(6)])
    assert offsets(reader, Prefix(ALL_TEXT, "aa1")) == [1]
    with pytest.raises(Invalid, match="give more letters"):
        offsets(reader, Or((Prefix(ALL_TEXT, "aa"), Term(ALL_TEXT, "x"))))


def test_commits_name_their_files_and_give_new_ones_once(engine, stored, tmp_path):
    writer = engine.create(tmp_path / "shard", MAPPING)
    for at in range(40):
        writer.add([indexed(at, document(f"word{at} all"))])
        new = stored.take(writer)
        assert set(new) <= set(stored.names)
        if at % 10 == 0:
            assert offsets(stored.reader(engine), Term(ALL_TEXT, "all")) == list(range(at + 1))
    before = list(stored.names)
    assert not stored.take(writer).keys() - {stored.names[-1]} or set(stored.names) != set(before)
    assert offsets(stored.reader(engine, before), Term(ALL_TEXT, "all")) == list(range(40))
    writer.merge()
    stored.take(writer)
    assert len(stored.names) < 40
    assert offsets(stored.reader(engine), Term(ALL_TEXT, "all")) == list(range(40))
    writer.close()
    writer.close()


def test_commit_without_documents_is_an_empty_shard(engine, stored, tmp_path):
    writer = engine.create(tmp_path / "shard", Mapping())
    stored.take(writer)
    assert offsets(engine.open(stored.there(), Mapping()), Everything()) == []


def test_shard_goes_on_where_it_was_stored(engine, stored, tmp_path):
    writer = engine.create(tmp_path / "shard", MAPPING)
    for at in range(3):
        writer.add([indexed(at, document("x"))])
        stored.take(writer)
    writer.add([indexed(99, document("x"))])  # is not stored: somebody else takes over
    copy = stored.there()
    other = engine.resume(copy, MAPPING)
    for at in range(3, 30):
        other.add([indexed(at, document("x"))])
        stored.take(other)
    other.merge()
    stored.take(other)
    other.close()
    writer.close()
    assert offsets(stored.reader(engine), Term(ALL_TEXT, "x")) == list(range(30))
    engine.discard(copy)
    engine.discard(copy)
    engine.discard(tmp_path / "no")
    assert not copy.exists() or not list(copy.iterdir())


def test_directory_without_a_commit_is_damaged(engine, stored, tmp_path):
    shard(engine, stored, tmp_path, DOCUMENTS).close()
    copy = stored.there(stored.names[:-1])
    for call in (engine.open, engine.resume):
        with pytest.raises(Corrupt):
            call(copy, MAPPING)
    copy = stored.there(stored.names[1:])
    with pytest.raises(Corrupt):
        offsets(engine.open(copy, MAPPING), Term(ALL_TEXT, "alice"))


def test_values_at_the_bounds_are_kept(engine, stored, tmp_path):
    documents = [
        document("x", user="y" * 256, amount=1e308, at=(1 << 63) - 1),
        document("z" * 128, amount=5e-324, at=-(1 << 63)),
    ]
    reader = shard(engine, stored, tmp_path, documents)
    assert offsets(reader, Equals("user.id", "y" * 256)) == [0]
    assert offsets(reader, Term(ALL_TEXT, "z" * 128)) == [1]
    assert offsets(reader, Range("amount", 1e307, None)) == [0]
    assert offsets(reader, Range("amount", 0, 1e-300, with_low=False)) == [1]
    assert offsets(reader, Range("at", 0, None)) == [0]


def test_many_fields(engine, stored, tmp_path):
    mapping = Mapping(tuple(Field(f'a.b "{at}"', Kind.KEYWORD) for at in range(200)))
    documents = [Document({}, {mapping.fields[at % 200].path: [f"v{at}"]}) for at in range(400)]
    reader = shard(engine, stored, tmp_path, documents, mapping)
    assert offsets(reader, Equals('a.b "7"', "v207")) == [207]
    assert offsets(reader, Exists('a.b "7"')) == [7, 207]


def test_only_events_of_the_spans_are_answered_and_counted(engine, stored, tmp_path):
    here = [
        Indexed(Place(segment, offset), (at << 20), document("word", user=f"u{segment}"))
        for at, (segment, offset) in enumerate([(1, 0), (1, 8), (1, 16), (2, 0), (2, 8), (3 << 32, 0)])
    ]
    writer = engine.create(tmp_path / "shard", MAPPING)
    writer.add(here)
    stored.take(writer)
    writer.close()
    reader = engine.open(stored.there(), MAPPING)
    end = (1 << 63) - 1
    for spans, left in [
        (None, [0, 1, 2, 3, 4, 5]),
        ({}, []),
        ({1: (8, 16)}, [1]),
        ({1: (8, end), 3 << 32: (0, end)}, [1, 2, 5]),
        ({1: (16, 16), 2: (0, 8), 7: (0, end)}, [3]),
    ]:
        for sort in ("newest", "oldest", "score"):
            question = ShardQuestion(Term(ALL_TEXT, "word"), *EVER, sort, 100, 1, ("user.id",), 10, spans)
            answer = reader.search(question)
            assert {hit.place for hit in answer.hits} == {here[at].place for at in left}
            assert answer.total == len(left) == len(answer.hits)
            assert answer.buckets == tuple((at, 1) for at in left)
            counted = {value: count for value, count in (answer.facets or {}).get("user.id", ())}
            assert sum(counted.values()) == len(left)
