"""What Tantivy stores of a shard, and what it does not need to."""

from __future__ import annotations

import json

import pytest
import tantivy

from sarit.core.errors import Corrupt
from sarit.search import tantivy_shards
from sarit.search.documents import Document, Place
from sarit.search.mapping import Field, Kind, Mapping
from sarit.search.ports import Indexed, ShardQuestion
from sarit.search.query import ALL_TEXT, Equals, Exists, Phrase, Term
from sarit.search.tantivy_shards import TantivyShards, TantivyWriter, _schema

MAPPING = Mapping((Field("level", Kind.KEYWORD), Field("message", Kind.TEXT)))
EVER = -(1 << 63), 1 << 63
QUERIES = [
    Term(ALL_TEXT, "one"), Phrase(ALL_TEXT, ("one", "two")), Equals("level", "INFO"), Exists("message"),
    Exists("level"), Term("message", "two"),
]  # fmt: skip


def events(begin: int, end: int) -> list[Indexed]:
    return [
        Indexed(
            Place(3, at), at << 20,
            Document({ALL_TEXT: [["one", "two", f"n{at}"]], "message": [["two"]] if at % 2 else []},
                     {"level": ["INFO" if at % 3 else "ERROR"]}),
        )
        for at in range(begin, end)
    ]  # fmt: skip


def grown(writer, begin=0, end=1000) -> dict[str, bytes]:
    """The files of the shard after events of ten commits."""
    contents: dict[str, bytes] = {}
    for at in range(begin, end, 100):
        writer.add(events(at, at + 100))
        names, new = writer.commit(frozenset(contents))
        contents |= {name: bytes(content) for name, content in new.items()}
    return {name: contents[name] for name in names}


def closed(writer) -> dict[str, bytes]:
    writer.merge()
    names, contents = writer.commit(frozenset())
    files = {name: bytes(content) for name, content in contents.items()}
    assert set(files) == set(names)
    writer.close()
    return files


def answers(directory, files) -> list:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    reader = TantivyShards().open(directory, MAPPING)
    found = [
        reader.search(ShardQuestion(query, *EVER, sort, 7, 1 << 20, ("level",)))
        for query in QUERIES
        for sort in ("newest", "oldest")
    ]
    reader.close()
    return found


def kinds(files) -> set[str]:
    return {name.partition(".")[2] for name in files}


def test_closed_shard_has_what_merges_alone_read_compressed(tmp_path):
    writer = TantivyShards().create(tmp_path / "grows", MAPPING)
    before = grown(writer)
    assert "store" in kinds(before), "a shard that grows is merged"
    files = closed(writer)
    assert kinds(files) == {"fast", "fieldnorm", "idx", "json", "pos", "store.zlib", "term"}
    found = answers(tmp_path / "closed", files)
    stores = {path.name: path.read_bytes() for path in (tmp_path / "closed").glob("*.store")}
    assert stores == {path.name: path.read_bytes() for path in (tmp_path / "grows").glob("*.store")}
    packed = sum(len(content) for name, content in files.items() if name.endswith(".zlib"))
    assert packed < sum(len(content) for content in stores.values()) / 2
    assert found == answers(tmp_path / "growing", before)
    assert [answer.total for answer in found[::2]] == [1000, 1000, 666, 500, 1000, 500]


def test_damaged_file_of_a_closed_shard_is_corrupt(tmp_path, monkeypatch):
    writer = TantivyShards().create(tmp_path / "grows", MAPPING)
    grown(writer)
    files = closed(writer)
    packed = next(name for name in files if name.endswith(".zlib"))
    for number, damaged in enumerate([b"", files[packed][:-5], b"\0" + files[packed][1:]]):
        with pytest.raises(Corrupt, match=r"\.store\.zlib is"):
            answers(tmp_path / f"damaged {number}", files | {packed: damaged})
    monkeypatch.setattr(tantivy_shards, "MAX_STORE_FILE_BYTES", 100)
    with pytest.raises(Corrupt, match="more than 100 bytes"):
        answers(tmp_path / "large", files)


def test_keywords_have_no_lengths_and_texts_do(tmp_path):
    writer = TantivyShards().create(tmp_path / "grows", MAPPING)
    files = closed_files = grown(writer)
    closed(writer)
    (meta,) = (json.loads(content) for name, content in files.items() if name.endswith(".json"))
    indexing = {field["name"]: field["options"].get("indexing") for field in meta["schema"]}
    assert {name: one["fieldnorms"] for name, one in indexing.items() if one} == {
        "_has": False, "_all": True, "f0": False, "f1": True,
    }  # fmt: skip
    lengths = sum(len(content) for name, content in closed_files.items() if name.endswith(".fieldnorm"))
    assert 2 * 1000 <= lengths < 3 * 1000 - 1


def test_shards_of_before_grow_on_and_are_read(tmp_path):
    """Shards in which every field has lengths, and all of whose files are stored."""
    place = tmp_path / "before"
    place.mkdir()
    writer = TantivyWriter(place, MAPPING, tantivy.Index(_schema(MAPPING), str(place)))
    files = grown(writer, 0, 500)
    writer.close()
    assert len(answers(tmp_path / "read", files)) == 2 * len(QUERIES)
    resumed = tmp_path / "resumed"
    resumed.mkdir()
    for name, content in files.items():
        (resumed / name).write_bytes(content)
    other = TantivyShards().resume(resumed, MAPPING)
    grown(other, 500, 1000)
    found = answers(tmp_path / "closed", closed(other))
    new = TantivyShards().create(tmp_path / "new", MAPPING)
    grown(new)
    assert found == answers(tmp_path / "new closed", closed(new))
