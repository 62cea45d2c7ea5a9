"""Maintenance of tables by PyIceberg: which snapshots go, which files, and what readers by directory find."""

import json
from pathlib import Path

import pytest

from sarit.core.errors import Invalid
from sarit.lake.maintenance import Aged, Expired, expirable, expire
from sarit.lake.numbered_metadata import copy_of, write_numbered_metadata

pa = pytest.importorskip("pyarrow", reason="sarit[lake] is not installed")
pytest.importorskip("pyiceberg", reason="sarit[lake] is not installed")
LATER_MS = 1 << 50


def aged(number, parent=None, *, has_cut=True):
    return Aged(number, parent, number * 1000, has_cut)


def test_snapshots_before_a_time_go_and_the_newest_stays():
    chain = [aged(1), aged(2, 1), aged(3, 2), aged(4, 3)]
    assert expirable(chain, [4], 3000) == [1, 2]
    assert expirable(chain, [4], LATER_MS) == [1, 2, 3]
    assert expirable(chain, [4], 1000) == []


def test_oldest_of_too_many_go_whatever_their_age(monkeypatch):
    monkeypatch.setattr("sarit.lake.maintenance.MAX_SNAPSHOTS_KEPT", 2)
    assert expirable([aged(1), aged(2, 1), aged(3, 2), aged(4, 3)], [4], 0) == [1, 2]


def test_nearest_ancestor_that_says_its_cut_stays():
    """Above it somebody has compacted: those snapshots say no cut."""
    chain = [aged(1), aged(2, 1), aged(3, 2, has_cut=False), aged(4, 3, has_cut=False)]
    assert expirable(chain, [4], LATER_MS) == [1]


def test_snapshots_of_tags_stay_and_those_beside_the_chain_go():
    chain = [aged(1), aged(2, 1), aged(3, 2), aged(9, 1)]  # 9 was rolled back
    assert expirable(chain, [3, 1], LATER_MS) == [2, 9]


@pytest.fixture
def table(tmp_path):
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("shop")
    schema = pa.schema([pa.field("n", pa.int64())])
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
    yield catalog.create_table("shop.orders", schema, properties=properties)
    catalog.close()


def append(table, *numbers, cut="c"):
    table.append(pa.table({"n": pa.array(numbers, pa.int64())}), snapshot_properties={"sarit.cut.to": cut})


def files_of(table, suffix):
    return {path.name for path in Path(table.location().removeprefix("file://")).rglob(f"*{suffix}")}


def referred_to(table):
    """Return the names of manifests and their lists that snapshots refer to."""
    paths = set()
    for snapshot in table.refresh().metadata.snapshots:
        paths |= {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    return {path.rpartition("/")[2] for path in paths}


def read(table):
    return sorted(table.refresh().scan().to_arrow()["n"].to_pylist())


def test_files_that_only_removed_snapshots_refer_to_are_deleted(table):
    for number in range(8):
        append(table, number)
    before = referred_to(table)
    assert expire(table, LATER_MS) == Expired(7, len(before) - len(referred_to(table)))
    assert len(table.refresh().metadata.snapshots) == 1
    # PyIceberg itself leaves a file at each merge of manifests, which no snapshot has ever referred to.
    assert before & files_of(table, ".avro") == referred_to(table) < before
    assert read(table) == list(range(8))
    append(table, 8)
    assert read(table) == list(range(9))
    assert expire(table, 0) == Expired()


def test_data_files_stay_unless_somebody_has_rewritten_them(table):
    append(table, 1)
    append(table, 2)
    append(table, 3)
    expire(table, LATER_MS)
    assert len(files_of(table, ".parquet")) == 3
    table.overwrite(pa.table({"n": pa.array([1, 2, 3], pa.int64())}))  # as a compaction
    append(table, 4)
    assert len(files_of(table, ".parquet")) == 5
    expire(table, LATER_MS)
    assert len(files_of(table, ".parquet")) == 2
    assert read(table) == [1, 2, 3, 4]


def test_files_of_a_tag_stay(table):
    append(table, 1)
    append(table, 2)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "month").commit()
    table.overwrite(pa.table({"n": pa.array([7], pa.int64())}), snapshot_properties={"sarit.cut.to": "c"})
    expire(table, LATER_MS)
    tagged = table.refresh().metadata.refs["month"].snapshot_id
    assert sorted(table.scan(snapshot_id=tagged).to_arrow()["n"].to_pylist()) == [1, 2]
    assert read(table) == [7]


def test_tag_that_another_client_has_made_counts(table):
    append(table, 1)
    first = table.current_snapshot().snapshot_id
    append(table, 2)
    append(table, 3)
    other = table.catalog.load_table("shop.orders")
    other.manage_snapshots().create_tag(first, "first").commit()
    assert expire(table, LATER_MS).snapshots == 1
    assert table.refresh().scan(snapshot_id=first).to_arrow()["n"].to_pylist() == [1]


def test_copy_has_the_number_of_its_file_and_one():
    assert copy_of("s3://b/t/metadata/00012-8e6a.metadata.json") == ("s3://b/t/metadata", 13)
    with pytest.raises(Invalid, match="without a number"):
        copy_of("s3://b/t/metadata/newest.metadata.json")


def test_newest_metadata_is_found_by_its_number(table):
    directory = Path(table.location().removeprefix("file://")) / "metadata"
    for number in range(1, 4):
        append(table, number)
        copied = write_numbered_metadata(table)
        assert (directory / "version-hint.text").read_text() == str(copied)
        content = json.loads((directory / f"v{copied}.metadata.json").read_text())
        assert content["current-snapshot-id"] == table.current_snapshot().snapshot_id
        assert write_numbered_metadata(table) == copied
    assert not list(directory.glob("*.new"))


def test_older_metadata_does_not_replace_newer(table):
    append(table, 1)
    old = table.catalog.load_table("shop.orders")
    append(table, 2)
    newest = write_numbered_metadata(table)
    assert write_numbered_metadata(old) == newest


def test_copies_far_behind_are_deleted(table, monkeypatch):
    monkeypatch.setattr("sarit.lake.numbered_metadata.NUMBERED_METADATA_KEPT", 2)
    numbers = []
    for number in range(5):
        append(table, number)
        numbers.append(write_numbered_metadata(table))
    assert files_of(table, ".metadata.json") >= {f"v{number}.metadata.json" for number in numbers[-2:]}
    assert not [n for n in numbers[:-3] if f"v{n}.metadata.json" in files_of(table, ".metadata.json")]
