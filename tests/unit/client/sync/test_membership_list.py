"""The membership list's bytes and rules, and the failure detector: both pure."""

import pytest

from sarit.client.sync import membership_list
from sarit.client.sync.failure_detector import FailureDetector
from sarit.client.sync.membership_list import Member, MembershipList
from sarit.client.sync.revisioned_stream import Revision
from sarit.core.errors import Corrupt, Invalid


def after(*updates: bytes, current: MembershipList | None = None) -> MembershipList:
    current = current or membership_list.empty(1000)
    for update in updates:
        current = membership_list.apply(current, update, Revision(0))
    return current


def test_bytes_of_the_membership_list() -> None:
    assert membership_list.join("a", "x") == b'{"join":"a","data":"x"}'
    assert membership_list.leave(2) == b'{"leave":2}'
    assert membership_list.heartbeat(2) == b'{"beat":2}'
    assert membership_list.describe(2, "y") == b'{"data":"y","of":2}'
    made = after(membership_list.join("a", "x"), membership_list.heartbeat(1))
    data = b'{"version":1,"lease_ms":1000,"next":2,"members":{"a":{"number":1,"beats":1,"data":"x"}}}'
    assert membership_list.encode(made) == data
    assert membership_list.decode(data) == made
    for broken in (b"", b"{}", b"[]", data.replace(b'"version":1', b'"version":2'), data.replace(b"1000", b"null")):
        with pytest.raises(Corrupt):
            membership_list.decode(broken)
    for broken in (b"", b"{}", b"[]", b'{"join":"a"}', b'{"beat":"x"}'):
        with pytest.raises(Corrupt):
            after(broken)


def test_numbers_rise_and_are_never_reused() -> None:
    made = after(
        membership_list.join("a", ""),
        membership_list.join("b", ""),
        membership_list.leave(2),
        membership_list.join("c", ""),
    )
    made = after(membership_list.leave(1), membership_list.join("a", "again"), current=made)
    assert list(made.members.values()) == [Member("c", 3, ""), Member("a", 4, "again")]


def test_taken_names_and_removed_numbers_have_no_effect() -> None:
    made = after(membership_list.join("a", "first"))
    same = after(
        membership_list.join("a", "second"),
        membership_list.heartbeat(7),
        membership_list.leave(7),
        membership_list.describe(7, "no"),
        current=made,
    )
    assert same == made
    assert after(membership_list.describe(1, "new"), current=made).members["a"].data == "new"


def test_names_and_data_have_bounds() -> None:
    membership_list.check_member("x" * 250, "y" * 16_384)
    for name, data in (("", ""), ("x" * 251, ""), ("x", "y" * 16_385)):
        with pytest.raises(Invalid):
            membership_list.check_member(name, data)


def test_member_silent_for_a_lease_is_detected() -> None:
    detector = FailureDetector(10.0)
    assert detector.observe({1: 5, 2: 5}, 100.0) == {}
    for step in range(1, 4):
        assert detector.observe({1: 5, 2: 5 + step}, 100.0 + 3 * step) == {}
    assert detector.observe({1: 5, 2: 9}, 110.0) == {1: 5}
    assert detector.observe({1: 6, 2: 9}, 111.0) == {}, "a rise ends it"
    assert detector.observe({2: 9}, 119.0) == {}
    assert detector.observe({1: 6, 2: 9}, 121.0) == {}, "a member that returns is not silent yet"


def test_observer_that_was_stopped_detects_nobody() -> None:
    detector = FailureDetector(10.0)
    detector.observe({1: 5}, 100.0)
    assert detector.observe({1: 5}, 5000.0) == {}
    assert detector.observe({1: 5}, 5001.0) == {}
    assert detector.observe({1: 5}, 5005.0) == {1: 5}
