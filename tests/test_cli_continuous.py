"""`sarit continuous` on a real node."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.test_cli import sarit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("continuous") / "data") as running:
        sarit(running, "scope", "create", "s")
        for stream in ("s/lines", "s/alerts"):
            sarit(running, "stream", "create", stream)
        yield running


def test_queries_are_created_shown_changed_and_deleted(node: RunningNode) -> None:
    said = sarit(node, "continuous", "create", "s/lines", "late", "delay -test", "s/alerts", "--with-event")[0]
    assert said.startswith("continuous query late holds from ")
    title, row = sarit(node, "continuous", "list", "s/lines")[0].splitlines()
    assert title.split() == ["NAME", "STATE", "QUERY", "OUTPUT", "MAKER", "PROBLEM"]
    assert row.split() == ["late", "active", "delay", "-test", "s/alerts", "-", "-"]
    shown = json.loads(sarit(node, "continuous", "show", "s/lines", "late", "--format", "json")[0])
    assert (shown["query"], shown["output"], shown["state"]) == ("delay -test", "s/alerts", "active")
    assert shown["holds_from"] == said.split()[-1]
    sarit(node, "write", "s/lines", stdin="a delay of two days\na test delay\n")
    end = time.monotonic() + HANG_SECONDS
    while not (found := sarit(node, "read", "s/alerts")[0]):
        assert time.monotonic() < end
    assert json.loads(found)["event"] == "a delay of two days"
    fields = sarit(node, "continuous", "show", "s/lines", "late")[0]
    assert "delay -test" in fields
    assert "holds from" in fields
    assert re.search(r"^created +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", fields, re.MULTILINE)
    assert "not asked because" not in fields
    changed = sarit(node, "continuous", "change", "s/lines", "late", "delay OR late")[0]
    assert changed.startswith("continuous query late holds from ")
    deleted = sarit(node, "continuous", "delete", "s/lines", "late", "--yes")[0]
    assert deleted == "continuous query late of s/lines is deleted\n"
    assert json.loads(sarit(node, "continuous", "list", "s/lines", "--format", "json")[0] or "[]") == []


def test_a_query_that_is_not_waited_for_says_how_to_see_when_it_holds(node: RunningNode) -> None:
    said = sarit(node, "continuous", "create", "s/lines", "soon", "delay", "s/alerts", "--wait", "0")[0]
    assert said == ("continuous query soon is pending: `sarit continuous show s/lines soon` says from when it holds\n")
    shown = json.loads(sarit(node, "continuous", "show", "s/lines", "soon", "--format", "json")[0])
    assert shown["all_queries"].keys() == {"events", "matches", "problem"}
    sarit(node, "continuous", "delete", "s/lines", "soon", "--yes")


def test_fields_of_events_to_come_are_those_of_a_mapping(node: RunningNode, tmp_path: Path) -> None:
    sarit(node, "stream", "create", "s/empty")
    asked = ("continuous", "create", "s/empty", "errors", "level:error", "s/alerts")
    assert "a mapping says which fields later events will have" in sarit(node, *asked, code=1)[1]
    assert "a mapping" not in sarit(node, *asked[:4], "(delay", "s/alerts", code=1)[1]
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"fields": {"level": "keyword"}}')
    assert "holds from" in sarit(node, *asked, "--mapping", str(mapping))[0]
    sarit(node, "continuous", "delete", "s/empty", "errors", "--yes")
    sarit(node, "stream", "delete", "s/empty", "--seal", "--yes")


def test_an_error_names_the_streams_that_there_are_only_if_a_stream_is_missing(node: RunningNode) -> None:
    assert sarit(node, "continuous", "show", "s/lines", "nothing", code=1)[1] == (
        "sarit: stream s/lines has no continuous query nothing, or none that you may see\n"
    )
    error = sarit(node, "continuous", "create", "s/lines", "late", "delay", "s/nowhere", code=1)[1]
    assert "stream s/nowhere does not exist" in error
    assert "there are s/alerts, s/lines" in error
