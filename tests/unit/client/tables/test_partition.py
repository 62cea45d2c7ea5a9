"""Changes whose replies are lost: the store executes them or not, and then closes the connection."""

import asyncio

import pytest

from sarit.client.core.retry import RetryPolicy
from sarit.client.session.session import Backoff, background
from sarit.client.tables.changes import Insert, Put, Remove, Replace, batch_of
from sarit.client.tables.partition import Partition
from sarit.core.errors import Conflict, Unavailable
from sarit.core.names import SegmentId, StreamName
from sarit.env.real import real_env
from sarit.wire import commands as wire
from tests.unit.client.tables.test_changes import layout

LOST, MOVED, BAD = "lost", "moved", "bad version"


class Store:
    """A connection and its session; `script` says what happens to each request, after that requests succeed."""

    def __init__(self, *script):
        self.env = real_env()
        self.script = list(script)
        self.requests = []
        self.background = background()
        self.forgotten = 0

    def backoff(self):
        return Backoff(real_env(), RetryPolicy(0.2))

    async def connect(self, stream, segment, purpose):
        return self, ""

    def forget_endpoint(self, stream, segment):
        self.forgotten += 1

    async def ask(self, make, place):
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


def test_unconditional_change_is_sent_again():
    store = Store(LOST, LOST)
    assert outcomes(store, Put("aa", "")) == [[100]]
    assert store.requests == [[b"aa"]] * 3


def test_insert_is_not_sent_again():
    store = Store(LOST)
    (error,) = outcomes(store, Insert("aa", ""))
    assert isinstance(error, Unavailable)
    assert store.requests == [[b"aa"]]


def test_versioned_change_is_sent_again_and_uncertainty_is_reported():
    assert outcomes(Store(LOST), Replace("aa", "", 5)) == [[100]]
    (error,) = outcomes(Store(LOST, BAD), Replace("aa", "", 5))
    assert isinstance(error, Unavailable), "it may have been this change that gave the key another version"
    assert "a reply was lost" in str(error)
    (error,) = outcomes(Store(BAD), Replace("aa", "", 5))
    assert isinstance(error, Conflict)


def test_wrong_host_reply_means_not_applied():
    store = Store(MOVED)
    assert outcomes(store, Insert("aa", "")) == [[100]]
    assert store.forgotten == 1
    (error,) = outcomes(Store(MOVED, BAD), Insert("aa", ""))
    assert isinstance(error, Conflict), "no reply was lost"


def test_coalesced_changes_are_sent_one_by_one_after_a_refusal():
    store = Store(BAD, None, BAD)
    first, second, third = outcomes(store, Insert("aa", ""), Insert("bb", ""), Put("cc", ""))
    assert store.requests == [[b"aa", b"bb", b"cc"], [b"aa"], [b"bb"], [b"cc"]]
    assert (first, third) == ([100], [100])
    assert isinstance(second, Conflict)


def test_uncertain_coalesced_changes_are_resolved_separately():
    store = Store(LOST)
    first, second, third = outcomes(store, Insert("aa", ""), Put("bb", ""), Replace("cc", "", 5))
    assert isinstance(first, Unavailable)
    assert (second, third) == ([100], [100])
    assert store.requests == [[b"aa", b"bb", b"cc"], [b"bb"], [b"cc"]]


def test_writes_and_removals_are_applied_in_order():
    store = Store()
    assert outcomes(store, Put("aa", ""), Remove("aa"), Remove("bb"), Put("aa", "")) == [[100], [-1], [-1], [100]]
    assert store.requests == [[b"aa"], [b"aa", b"bb"], [b"aa"]]


def test_change_cancelled_before_sending_is_not_sent():
    async def main():
        store = Store()
        partition = Partition(store, StreamName("s", "t"), StreamName("s", "t_kvtable"), SegmentId(0, 0))
        waiting = [partition.change(batch_of(layout(), [Put(f"{n:02}", "")])) for n in range(3)]
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return store.requests

    assert asyncio.run(main()) == [[b"00", b"02"]]


@pytest.mark.parametrize("change", [Insert("aa", ""), Put("aa", "")])
def test_retry_timeout_ends_the_retries(change):
    (error,) = outcomes(Store(*[LOST] * 200), change)
    assert isinstance(error, Unavailable)
