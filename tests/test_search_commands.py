"""Streams that are searchable, at the shell: `sarit stream update --searchable` on a real node."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import sarit as client_library
from sarit.process.job_kinds import KINDS
from sarit.search.progress import texts_of
from sarit.search.settings import SEARCH_KIND, decode_settings
from sarit.search.state import IndexState
from tests.examples.fast_node import fast_node
from tests.test_cli import sarit

MAPPING = {"fields": {"level": "keyword", "message": "text", "at": "time"}, "time_field": "at"}


@dataclass(frozen=True)
class Place:
    """A node."""

    controller: str


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, SEARCH_KIND, __name__)
        with fast_node(tmp_path_factory.mktemp("search") / "data", 20, jobs=True) as controller:
            with client_library.connect(controller) as client:
                client.create_scope("web")
            yield Place(controller)


# -- a kind of job that takes settings, says how far it is, and indexes nothing ----------------------


def check(_key, settings, _config):
    decode_settings(settings)


def describe(state):
    return texts_of(IndexState.decode(state), 3)


def runner(world):
    async def run(job, save):
        tail = await world.client.stream_cut_tail(job.key.stream)
        state = IndexState("ab", tail, events=1200, partly=1, lost_bytes=8, stored_bytes=4096, committed_ms=1)
        await save(state.encode(), None)

    return run


# ----------------------------------------------------------------------------------------------------


def said(place, *words, code=0):
    """The JSON that a command prints, or its error."""
    out, err = sarit(place, *words, *(["--format", "json"] if code == 0 else []), code=code)
    return json.loads(out) if code == 0 else err


def test_stream_becomes_searchable_shows_its_index_and_ends(place, tmp_path):
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps(MAPPING))
    assert said(place, "stream", "create", "web/log")["created"] is True
    assert said(place, "stream", "info", "web/log")["search"] is None
    found = said(place, "stream", "update", "web/log", "--searchable", "--search-interval", "1")["search"]
    assert (found["interval_seconds"], found["start"], found["mapping"]) == (1, "head", None)
    with client_library.connect(place.controller) as client:
        while not client.stream("web/log").jobs()[0].done:
            pass
    found = said(place, "stream", "info", "web/log")["search"]
    assert (found["events"], found["shards"], found["bytes"], found["lag_bytes"]) == (1200, 3, 4096, 0)
    text = sarit(place, "stream", "info", "web/log")[0]
    assert "index     complete, every 1 second" in text
    assert "indexed   1,200 events in 3 shards of 4,096 bytes, last commit " in text
    assert "behind    0 bytes" in text
    assert "gap       8 bytes were truncated before they were indexed" in text

    same = sarit(place, "stream", "update", "web/log", "--searchable", "--search-interval", "1")[1]
    assert "made again" not in same
    out, err = sarit(place, "stream", "update", "web/log", "--search-mapping", str(mapping), "--format", "json")
    assert "the index of web/log is deleted, and made again from the head" in err
    changed = json.loads(out)["search"]
    assert (changed["mapping"], changed["interval_seconds"]) == (MAPPING, 1)
    assert said(place, "stream", "update", "web/log", "--not-searchable")["search"] is None
    assert "stream web/log has no index" in said(place, "stream", "update", "web/log", "--not-searchable", code=1)


def test_new_stream_can_be_searchable_from_the_start(place):
    said(place, "stream", "create", "web/new", "--searchable", "--search-start", "tail")
    assert said(place, "stream", "info", "web/new")["search"]["start"] == "tail"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["--search-interval", "5"], 2, "need --searchable: the stream has no index"),
        (["--searchable", "--not-searchable"], 2, "--not-searchable, or options of an index, not both"),
        (["--searchable", "--search-interval", "0"], 1, "interval of an index cannot be 0 seconds"),
        (["--searchable", "--search-start", "middle"], 2, "middle"),
        (["--searchable", "--search-mapping", "/dev/none"], 2, "does not exist"),
        (["--searchable", "--search-mapping", "/dev/zero"], 2, "has more than"),
        (["--searchable", "--search-mapping", "/etc/hostname"], 2, "/etc/hostname is not JSON"),
        (["--not-searchable"], 1, "stream web/wrong has no index"),
    ],
)
def test_wrong_index_is_refused_and_nothing_is_made(place, words, code, reason):
    said(place, "stream", "create", "web/wrong")
    assert reason in " ".join(said(place, "stream", "update", "web/wrong", *words, code=code).split())
    assert said(place, "stream", "info", "web/wrong")["search"] is None


def test_mapping_that_contradicts_itself_is_refused(place, tmp_path):
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"fields": {"a": "text"}, "time_field": "a"}')
    words = ("stream", "create", "web/never", "--searchable", "--search-mapping", str(mapping))
    error = " ".join(said(place, *words, code=2).split())
    assert f"{mapping}: the time field 'a' of a mapping is not among its fields of times" in error
