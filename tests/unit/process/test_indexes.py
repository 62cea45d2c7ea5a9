"""Where the indexes of a node are: claimed once, the same at every start."""

import asyncio
import sys

import pytest

from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from sarit.index.slate import SlateIndexProvider
from sarit.index.sqlite import SqliteIndexProvider
from sarit.ops.verify.directory import describe
from sarit.process.ownership.claims import claim_directory
from sarit.process.places import indexes
from sarit.process.places.indexes import claim_index_storage, open_indexes
from sarit.process.settings import NodeConfig
from sarit.storage.memory import MemoryChunks

URL = "s3://bucket/indexes"


class Away(MemoryChunks):
    """Nothing answers."""

    async def read(self, name, offset, length, check=None):
        raise Unavailable("no route to host")


def start(monkeypatch, directory, place, url=URL, storage_url="s3://bucket/chunks", *, complete=True):
    """A start until the store would open, which it then has or has not done."""
    config, env = NodeConfig(str(directory), storage_url=storage_url, index_url=url).validated(), real_env()

    async def open_place(asked, env):
        assert asked == url
        return place

    monkeypatch.setattr(indexes, "open_storage", open_place)
    claim = claim_directory(config, env)
    try:
        asyncio.run(claim_index_storage(config, env, claim))
        (directory / "log" / "0").mkdir(parents=True, exist_ok=True)
        for number in range(4):
            (directory / "log" / str(number)).mkdir(parents=True, exist_ok=True)
            (directory / "log" / str(number) / "1.log").touch()
        (directory / "last-start").touch()
        if complete:
            claim.mark_complete(config, env)
    finally:
        claim.lock.close()
    return claim


def test_place_of_indexes_belongs_to_one_node(monkeypatch, tmp_path):
    place = MemoryChunks()
    start(monkeypatch, tmp_path / "one", place)
    for _ in range(2):
        with pytest.raises(Invalid, match=f"--index-storage {URL}: long-term storage belongs to the node"):
            start(monkeypatch, tmp_path / "two", place)
    start(monkeypatch, tmp_path / "one", place)
    with pytest.raises(Invalid, match="does not hold this node's owner chunk any more"):
        start(monkeypatch, tmp_path / "one", MemoryChunks())


def test_outage_prevents_only_the_first_start(monkeypatch, tmp_path, caplog):
    with pytest.raises(Unavailable):
        start(monkeypatch, tmp_path, Away())
    start(monkeypatch, tmp_path, MemoryChunks())
    start(monkeypatch, tmp_path, Away())
    assert "the storage of the indexes is unavailable" in caplog.text


def test_one_place_for_chunks_and_indexes_is_claimed_once(monkeypatch, tmp_path):
    place = MemoryChunks()
    start(monkeypatch, tmp_path, place, storage_url=URL)
    assert not place.chunks


@pytest.mark.parametrize(
    ("before", "later", "reason"),
    [
        (URL, None, f"was made with --index-storage {URL}: start it so again"),
        (None, URL, "was made without --index-storage: start it so again"),
        (URL, "s3://bucket/other", f"was made with --index-storage {URL}: start it so again"),
    ],
)
def test_indexes_stay_where_they_are(monkeypatch, tmp_path, before, later, reason):
    start(monkeypatch, tmp_path, MemoryChunks(), before, complete=False)
    with pytest.raises(Invalid, match=reason):
        start(monkeypatch, tmp_path, MemoryChunks(), later)


def test_place_may_change_before_first_use(monkeypatch, tmp_path):
    with pytest.raises(Unavailable):
        start(monkeypatch, tmp_path, Away(), "s3://misspelt")
    start(monkeypatch, tmp_path, MemoryChunks(), URL)


def test_offline_check_refuses_indexes_on_an_object_store(monkeypatch, tmp_path):
    start(monkeypatch, tmp_path, MemoryChunks())
    with pytest.raises(Invalid, match=f"the indexes of {tmp_path} are at {URL}: only those in a data directory"):
        describe(real_env(), str(tmp_path))


def test_indexes_are_made_by_the_url(tmp_path):
    env = real_env()
    shared = open_indexes(NodeConfig(str(tmp_path), index_url=URL), env, {"AWS_REGION": "us-east-1"})
    assert isinstance(shared, SlateIndexProvider)
    assert not (tmp_path / "index").exists()
    assert isinstance(open_indexes(NodeConfig(str(tmp_path)), env), SqliteIndexProvider)
    assert (tmp_path / "index").exists()


def test_missing_extra_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "slatedb", None)
    with pytest.raises(Invalid, match=r"an index on an object store needs .*sarit\[cluster\]"):
        open_indexes(NodeConfig(str(tmp_path), index_url=URL), real_env())


@pytest.mark.parametrize(
    "url", ["file:///tmp/x", "memory://", "hdfs://namenode/x", "s3://bucket?x", "x", "s3://[", "s3://"]
)
def test_other_places_are_refused(tmp_path, url):
    with pytest.raises(Invalid, match="s3://bucket/prefix"):
        NodeConfig(str(tmp_path), index_url=url).validated()


def test_keys_in_a_url_are_refused_and_not_repeated(tmp_path):
    with pytest.raises(Invalid, match="takes no user or key") as caught:
        NodeConfig(str(tmp_path), index_url="s3://key:secret@bucket").validated()
    assert "secret" not in str(caught.value)
