"""Lists of names: read as far as a page needs them, searched, and counted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sarit.admin.console.limits import CONSOLE_COUNT_SECONDS, CONSOLE_NAMES_AT_ONCE, CONSOLE_NAMES_SECONDS
from sarit.admin.console.names import GROUPS, SCOPES, STREAMS, NameLists, Wanted
from sarit.core.errors import Forbidden, Unavailable
from sarit.core.names import SYSTEM_SCOPE, StreamName


class _Clock:
    """`step`: what each question takes."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


class _Client:
    """Scopes with streams; `read`: how many names were asked for.  An exception in place of a name is raised."""

    def __init__(self, **scopes) -> None:
        self.scopes = scopes
        self.read = 0
        self.reader_groups = SimpleNamespace(list=self._list_groups)

    async def list_scopes(self):
        for scope in self.scopes:
            yield scope

    async def _list_groups(self, scope):
        yield f"{scope}/g"

    async def list_streams(self, scope):
        for name in self.scopes[scope]:
            await asyncio.sleep(0)
            if isinstance(name, Exception):
                raise name
            self.read += 1
            yield StreamName(scope, name)


def _page(client, clock=None, kind=STREAMS, **wanted):
    lists = NameLists(client, clock or _Clock(CONSOLE_COUNT_SECONDS))
    return asyncio.run(lists.page(kind, Wanted(**wanted)))


def _many(count):
    return [f"stream-{n:05d}" for n in range(count)]


def test_first_page_reads_only_the_names_it_needs() -> None:
    client = _Client(a=_many(10_000), b=_many(10_000))
    page = _page(client, limit=50)
    assert page.names == [f"a/{name}" for name in _many(50)]
    assert not page.counted
    assert page.total > 50  # there is a next page
    assert client.read <= 2 * CONSOLE_NAMES_AT_ONCE


def test_page_of_a_scope_asks_for_no_other() -> None:
    client = _Client(a=_many(10_000), b=_many(60))
    page = _page(client, scope="b", limit=50, offset=50)
    assert page.names == [f"b/{name}" for name in _many(60)[50:]]
    assert (page.total, page.counted, page.complete) == (60, True, True)
    assert client.read == 60


def test_what_is_quick_to_count_is_counted() -> None:
    page = _page(_Client(a=_many(1_000)), clock=_Clock(), limit=50)
    assert (page.total, page.counted) == (1_000, True)


def test_count_that_is_asked_for_reads_everything() -> None:
    page = _page(_Client(a=_many(10_000)), limit=1, counted=True)
    assert (len(page.names), page.total, page.counted) == (1, 10_000, True)


def test_search_reads_on_until_the_page_is_full() -> None:
    client = _Client(a=_many(10_000))
    page = _page(client, text=" STREAM-0777", limit=50)
    assert page.names == [f"a/stream-0777{n}" for n in range(10)]
    assert (page.total, page.counted, client.read) == (10, True, 10_000)
    client.read = 0
    assert not _page(client, text="stream-00", limit=50).counted
    assert client.read < 1_000


def test_list_that_is_too_long_is_incomplete(monkeypatch) -> None:
    monkeypatch.setattr("sarit.admin.console.names.CONSOLE_MAX_NAMES", 120)
    page = _page(_Client(a=_many(121)), limit=50, counted=True)
    assert (page.total, page.counted, page.complete) == (120, True, False)
    assert _page(_Client(a=_many(120)), limit=50, counted=True).complete


def test_scopes_are_those_of_users() -> None:
    page = _page(_Client(a=[], **{SYSTEM_SCOPE: ["x"]}, b=[]), kind=SCOPES)
    assert page.names == ["a", "b"]
    assert _page(_Client(**{SYSTEM_SCOPE: ["x"]}), scope=SYSTEM_SCOPE).names == []


def test_scope_that_may_not_be_read_hides_no_other() -> None:
    page = _page(_Client(a=["x"], b=[Forbidden("no")], c=["y"]))
    assert page.names == ["a/x", "c/y"]


def test_names_are_used_again_for_some_seconds() -> None:
    client, clock = _Client(a=_many(100)), _Clock()
    lists = NameLists(client, clock)

    async def read() -> int:
        await lists.page(STREAMS, Wanted(limit=10))
        return client.read

    async def test() -> None:
        assert [await read(), await read()] == [100, 100]
        lists.changed()
        assert await read() == 200
        clock.now += CONSOLE_NAMES_SECONDS
        assert await read() == 300

    asyncio.run(test())


def test_reader_that_is_cancelled_or_fails_takes_no_names_from_others() -> None:
    names: list = _many(10_000)
    client, clock = _Client(a=names), _Clock()
    lists = NameLists(client, clock)

    async def test() -> None:
        first = asyncio.ensure_future(lists.page(STREAMS, Wanted(counted=True)))
        second = asyncio.ensure_future(lists.page(STREAMS, Wanted(counted=True)))
        await asyncio.sleep(0.001)
        assert not first.done()
        first.cancel()
        page = await second
        assert (page.total, page.counted) == (10_000, True)
        lists.changed()
        names[5_000] = Unavailable("away")
        with pytest.raises(Unavailable):
            await lists.page(STREAMS, Wanted(counted=True))
        names[5_000] = "back"
        assert (await lists.page(STREAMS, Wanted(counted=True))).total == 10_000

    asyncio.run(test())


def test_groups_are_listed_scope_by_scope() -> None:
    assert _page(_Client(a=[], b=[]), kind=GROUPS).names == ["a/g", "b/g"]
