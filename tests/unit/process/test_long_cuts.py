"""Long cuts that callers of searches give: bounded, and parsed beside the event loop."""

from __future__ import annotations

import threading

import pytest

from sarit.core.cuts import StreamCut
from sarit.core.errors import Invalid
from sarit.core.names import SegmentId
from sarit.process.search import family as family_module
from sarit.rpc.generated import search_pb2 as pb
from sarit.search.answers import Ask, Page
from sarit.search.limits import MAX_PAGE_BYTES
from tests.unit.controller.world import STREAM
from tests.unit.process.search_index import event
from tests.unit.process.test_search_family import run


class Threads:
    """Notes which calls the event loop's thread runs, and which another one does."""

    def __init__(self, monkeypatch):
        self.called = []
        for name in ("ask_of", "cut_of"):
            monkeypatch.setattr(family_module, name, self.noting(name, getattr(family_module, name)))

    def noting(self, name, call):
        def noted(*args):
            self.called.append((name, threading.current_thread() is threading.main_thread()))
            return call(*args)

        return noted


def long_page(count):
    """Return the token of a page with a cut of many segments: about as long as one may be."""
    positions = {SegmentId(1, number): 1 << 40 for number in range(count)}
    return Page(StreamCut(STREAM, positions), 0, 0, 0, 0, Ask("*").asked).encode()


def test_long_cuts_of_callers_are_parsed_beside_the_event_loop(tmp_path, monkeypatch):
    threads = Threads(monkeypatch)

    async def work(place):
        for at in range(2):
            place.index.add(1000 * at, event("word"))
        await place.index.commit()
        page = (await place.search(limit=1)).page
        assert len(page) < 100
        assert len((await place.search(limit=1, page=page)).hits) == 1
        assert threads.called == [("ask_of", True)] * 2
        threads.called.clear()
        for count in (400, MAX_PAGE_BYTES // 16 - 10):
            with pytest.raises(Invalid, match="never was there"):
                await place.search(limit=1, page=long_page(count))
            # Nor by the call between controllers, which any reader may make.
            cut = pb.SearchCut(segments=range(count), offsets=[1 << 40] * count)
            with pytest.raises(Invalid, match="never was there"):
                await place.family.searchShards(
                    pb.SearchShardsRequest(
                        scope="s", stream="t", query=b"*", until=cut, sort="newest", limit=1, facetLimit=1
                    )
                )
        assert threads.called == [("ask_of", False), ("cut_of", False)] * 2
        with pytest.raises(Invalid, match="not one that a search returned"):
            await place.search(page=page.ljust(MAX_PAGE_BYTES + 1, b"x"))
        assert long_page(MAX_PAGE_BYTES // 16) == b"", "there are no further pages then"

    run(tmp_path, work)
