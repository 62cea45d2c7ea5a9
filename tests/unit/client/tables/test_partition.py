"""What becomes of changes whose replies are lost: a store that does or does not do them, and then hangs up."""

import asyncio

import pytest

from sarit.client.core.session import Background, Backoff
from sarit.client.tables.changes import Insert, Put, Remove, Replace, batch_of
from sarit.client.tables.partition import Partition
from sarit.core.errors import Conflict, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.wire import commands as wire
from tests.unit.client.tables.test_changes import layout

LOST, MOVED, BAD = "lost", "moved", "bad version"


class Store:
    """A connection and all that leads to it; `script` says what becomes of each request, from then on it is done."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.background = Background()
        self.connections = self
        self.forgotten = 0

    def backoff(self):
        return Backoff(lambda: 0.0, 1.0)

    async def endpoint(self, stream, segment):
        return "host", 1

    async def to(self, endpoint, purpose):
        return self

    def forget_endpoint(self, stream, segment):
        self.forgotten += 1

    async def ask(self, make):
        await asyncio.sleep(0)
        request = make(1)
        items = request.entries if isinstance(request, wire.UpdateTableEntries) else request.keys
        self.requests.append([bytes(item.key) for item in items])
        what = self.script.pop(0) if self.script else None
        if what == LOST:
            raise Unavailable("the connection was lost")
        if what == MOVED:
            return wire.WrongHost(1, "s", "", "")
        if what == BAD:
            return wire.TableKeyBadVersion(1, "s", "")
        if isinstance(request, wire.RemoveTableKeys):
            return wire.TableKeysRemoved(1, "s")
        return wire.TableEntriesUpdated(1, tuple(range(100, 100 + len(items))))


def outcomes(store, *changes):
    async def main():
        partition = Partition(store, StreamName("s", "t"), StreamName("s", "t_kvtable"), SegmentId(0, 0))
        waiting = [partition.change(batch_of(layout(), [change])) for change in changes]
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_what_has_no_condition_is_sent_again():
    store = Store(LOST, LOST)
    assert outcomes(store, Put("aa", "")) == [[100]]
    assert store.requests == [[b"aa"]] * 3


def test_an_insert_is_not_sent_again():
    store = Store(LOST)
    (error,) = outcomes(store, Insert("aa", ""))
    assert isinstance(error, Unavailable)
    assert store.requests == [[b"aa"]]


def test_a_version_is_asked_for_again_and_doubt_is_told():
    assert outcomes(Store(LOST), Replace("aa", "", 5)) == [[100]]
    (error,) = outcomes(Store(LOST, BAD), Replace("aa", "", 5))
    assert isinstance(error, Unavailable), "it may have been this change that gave the key another version"
    assert "a reply was lost" in str(error)
    (error,) = outcomes(Store(BAD), Replace("aa", "", 5))
    assert isinstance(error, Conflict)


def test_a_store_that_does_not_serve_it_did_nothing():
    store = Store(MOVED)
    assert outcomes(store, Insert("aa", "")) == [[100]]
    assert store.forgotten == 1
    (error,) = outcomes(Store(MOVED, BAD), Insert("aa", ""))
    assert isinstance(error, Conflict), "no reply was lost"


def test_gathered_changes_are_judged_one_by_one_after_a_refusal():
    store = Store(BAD, None, BAD)
    first, second, third = outcomes(store, Insert("aa", ""), Insert("bb", ""), Put("cc", ""))
    assert store.requests == [[b"aa", b"bb", b"cc"], [b"aa"], [b"bb"], [b"cc"]]
    assert (first, third) == ([100], [100])
    assert isinstance(second, Conflict)


def test_gathered_changes_in_doubt_are_told_apart():
    store = Store(LOST)
    first, second, third = outcomes(store, Insert("aa", ""), Put("bb", ""), Replace("cc", "", 5))
    assert isinstance(first, Unavailable)
    assert (second, third) == ([100], [100])
    assert store.requests == [[b"aa", b"bb", b"cc"], [b"bb"], [b"cc"]]


def test_writes_and_removals_keep_their_order():
    store = Store()
    assert outcomes(store, Put("aa", ""), Remove("aa"), Remove("bb"), Put("aa", "")) == [[100], [-1], [-1], [100]]
    assert store.requests == [[b"aa"], [b"aa", b"bb"], [b"aa"]]


def test_who_gave_up_before_it_was_sent_changes_nothing():
    async def main():
        store = Store()
        partition = Partition(store, StreamName("s", "t"), StreamName("s", "t_kvtable"), SegmentId(0, 0))
        waiting = [partition.change(batch_of(layout(), [Put(f"{n:02}", "")])) for n in range(3)]
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return store.requests

    assert asyncio.run(main()) == [[b"00", b"02"]]


@pytest.mark.parametrize("change", [Insert("aa", ""), Put("aa", "")])
def test_patience_ends(change):
    (error,) = outcomes(Store(*[LOST] * 200), change)
    assert isinstance(error, Unavailable)
