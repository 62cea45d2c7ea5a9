"""Two nodes are given one place for their chunks, or a node a place that is not its own any more."""

from __future__ import annotations

import shutil

import pytest

from tests.nodes import RunningNode


def refusal(directory, *options: str) -> str:
    """What a node says that does not start."""
    node = RunningNode(directory, *options)
    with pytest.raises(AssertionError):
        node.start()
    return node.log()


def test_each_has_a_place_of_its_own(tmp_path) -> None:
    storage = ("--storage", f"file://{tmp_path}/chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "chunks").rglob("*"))
    said = refusal(tmp_path / "two", *storage)
    assert "belongs to the node" in said
    assert "Traceback" not in said
    assert sorted(path.relative_to(tmp_path) for path in (tmp_path / "chunks").rglob("*")) == before
    with RunningNode(tmp_path / "one", *storage):
        pass


def test_a_place_that_is_not_mounted_is_not_taken_for_an_empty_one(tmp_path) -> None:
    storage = ("--storage", f"file://{tmp_path}/chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
    shutil.move(tmp_path / "chunks", tmp_path / "elsewhere")
    assert "is it mounted" in refusal(tmp_path / "one", *storage)
    shutil.rmtree(tmp_path / "chunks")
    shutil.move(tmp_path / "elsewhere", tmp_path / "chunks")
    with RunningNode(tmp_path / "one", *storage):
        pass
