"""Two nodes with the same long-term storage, or a node with the storage of another."""

from __future__ import annotations

import shutil

import pytest

from tests.nodes import RunningNode


def refusal(directory, *options: str) -> str:
    """The error of a node that does not start."""
    node = RunningNode(directory, *options)
    with pytest.raises(AssertionError):
        node.start()
    return node.log()


def test_second_node_on_same_storage_is_refused(tmp_path) -> None:
    storage = ("--storage", f"file://{tmp_path}/chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "chunks").rglob("*"))
    for _ in range(2):  # the second try is as wrong as the first
        said = refusal(tmp_path / "two", *storage)
        assert "belongs to the node" in said
        assert "Traceback" not in said
    assert sorted(path.relative_to(tmp_path) for path in (tmp_path / "chunks").rglob("*")) == before
    with RunningNode(tmp_path / "one", *storage):
        pass


def test_unmarked_chunks_are_refused_by_new_node_at_second_start(tmp_path) -> None:
    """As left by a deleted owner chunk."""
    storage = ("--storage", f"file://{tmp_path}/chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
    mark = tmp_path / "chunks" / "node" / "owner.chunk"
    folder = tmp_path / "chunks" / "c0000" / "e0000000001"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "000000000099-s1-0.chunk").write_bytes(b"x")
    mark.unlink()
    for _ in range(2):
        assert "chunks that are not this node" in refusal(tmp_path / "two", *storage)
    assert not mark.exists()
    assert "is it mounted" in refusal(tmp_path / "one", *storage)


def test_unmounted_storage_is_not_treated_as_empty(tmp_path) -> None:
    storage = ("--storage", f"file://{tmp_path}/chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
    shutil.move(tmp_path / "chunks", tmp_path / "elsewhere")
    assert "is it mounted" in refusal(tmp_path / "one", *storage)
    shutil.rmtree(tmp_path / "chunks")
    shutil.move(tmp_path / "elsewhere", tmp_path / "chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
