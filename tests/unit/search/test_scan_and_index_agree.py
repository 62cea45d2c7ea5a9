"""Texts of queries on events, answered by an index of a batch and by a shard of Tantivy: the same events."""

from __future__ import annotations

import json
import random

import pytest

from sarit.core.errors import Invalid
from sarit.search.batch_index import BatchIndex, places
from sarit.search.document_maker import DocumentMaker
from sarit.search.documents import Place
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.ports import Indexed, ShardQuestion
from sarit.search.query_parser import parse_query
from sarit.search.tantivy_shards import TantivyShards

MAPPING = Mapping(
    (
        Field("message", Kind.TEXT), Field("level", Kind.KEYWORD), Field("took", Kind.NUMBER), Field("at", Kind.TIME),
        Field("ok", Kind.BOOLEAN), Field("user.id", Kind.NUMBER), Field("user.name", Kind.TEXT),
    )
)  # fmt: skip
WORDS = [
    "error", "timeout", "Order", "ordering", "order", "東京", "京", "Straße", "ΟΔΟΣ", "a", "b", "42", "10.0.0.1",
    "foo-bar", "x_y", "İstanbul", "naïve", "x" * 200,
]  # fmt: skip
SEARCHED = [*WORDS, "ord*", "or*", "err*", "stra*", "na*", "xx*", '"order 42"', '"a b"', '"東京"']
LEAVES = [
    "level:ERROR", "level:error", "level:ER*", "level:東京", "level:İ*", 'level:""', "level:7", "level:*", "took:*",
    "message:*", "at:*", "ok:true", "ok:false", "ok:*", "user.name:bo*", "took:0", "took:-0", "took:2.5", "took:1e300",
    "took:>0", "took:>=0", "took:<1", "took:<=-3", "took:[0 TO 2.5}", "took:{0 TO *]", "took:[3 TO 1]", "at:2026-01-31",
    "at:>2026-01-31", "at:<1970-01-01", "at:>=2026-01-31T12:00:00Z", "at:9999-12-31", "at:1700000000000",
    "level:[E TO X]", "level:{ERROR TO WARN}", "level:<F", "level:>=w", "user.id:[2 TO 4]", "*",
]  # fmt: skip
VALUES = {
    "level": ["ERROR", "WARN", "info", "", "a b", "東京", "İ", "\ud800z", ["ERROR", "x"], 7],
    "took": [0, -0.0, 1, 2.5, -3, 1e300, 10**400, "x", [1, 2], True],
    "at": ["2026-01-31T12:00:00Z", "2026-01-31", "1950-01-01", "2026-02-01T00:00:00.5Z", 1_700_000_000_000, "x",
           "9999-12-31"],
    "ok": [True, False, None, 1, [True, False]],
    "user": [{"id": number, "name": name} for number in range(5) for name in ("ann", "Bob", "bo b")],
}  # fmt: skip


def text(chosen: random.Random) -> str:
    return chosen.choice([" ", "-", "_", ", "]).join(chosen.choices(WORDS, k=chosen.randint(0, 8)))


def event(chosen: random.Random) -> bytes:
    if chosen.random() < 0.1:
        return text(chosen).encode()
    if chosen.random() < 0.03:
        return chosen.randbytes(30)
    document = {name: chosen.choice(values) for name, values in VALUES.items() if chosen.random() < 0.9}
    document["message"] = chosen.choice([text(chosen), [text(chosen), text(chosen)], 5, None])
    return json.dumps(document).encode()


def query(chosen: random.Random, depth: int) -> str:
    if depth == 0:
        kind = chosen.random()
        word = chosen.choice(SEARCHED)
        return word if kind < 0.3 else f"message:{word}" if kind < 0.5 else chosen.choice(LEAVES)
    if chosen.random() < 0.25:
        return chosen.choice(["-", "NOT "]) + f"({query(chosen, depth - 1)})"
    parts = [query(chosen, depth - 1) for _ in range(chosen.randint(2, 3))]
    return f"({chosen.choice([' ', ' OR ', ' AND ']).join(parts)})"


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_and_a_shard_find_the_same_events(tmp_path, seed) -> None:
    chosen = random.Random(seed)
    maker = DocumentMaker(MAPPING)
    documents = [maker.document(event(chosen)) for _ in range(600)]
    batch = BatchIndex(documents)
    engine = TantivyShards()
    (tmp_path / "grows").mkdir()
    writer = engine.create(tmp_path / "grows", MAPPING)
    for begin in range(0, len(documents), 200):
        writer.add([Indexed(Place(1, at), at << 20, documents[at]) for at in range(begin, begin + 200)])
        names, contents = writer.commit(frozenset())
    (tmp_path / "shard").mkdir()
    for name in names:
        (tmp_path / "shard" / name).write_bytes(contents[name])
    writer.close()
    shard = engine.open(tmp_path / "shard", MAPPING)
    answered = 0
    for _ in range(200):
        asked = query(chosen, chosen.randint(0, 3))
        try:
            found = parse_query(asked, MAPPING)
        except Invalid:
            continue
        answer = shard.search(ShardQuestion(found, -(1 << 63), (1 << 63) - 1, limit=len(documents)))
        assert sorted(hit.place.offset for hit in answer.hits) == places(batch.match(found)), asked
        assert answer.total == len(answer.hits)
        answered += 1
    shard.close()
    assert answered > 150
