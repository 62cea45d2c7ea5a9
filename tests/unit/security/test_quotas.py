"""The rate of bytes, and how quotas are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.security.byte_bucket import ByteBucket
from sarit.security.limits import MIN_QUOTA_BYTES_PER_SECOND, QUOTA_BURST_SECONDS, QUOTA_DEBT_SECONDS
from sarit.security.quotas import NO_QUOTA, Quota, Quotas

RATE = 1000.0


def test_burst_passes_at_once_and_what_follows_is_paid_for():
    bucket = ByteBucket(RATE)
    assert bucket.take(100.0, int(RATE * QUOTA_BURST_SECONDS)) == 0
    assert bucket.take(100.0, 250) == pytest.approx(0.25)
    assert bucket.debt(100.1) == pytest.approx(0.15)
    assert bucket.debt(100.3) == 0


def test_debt_has_a_bound():
    bucket = ByteBucket(RATE)
    assert bucket.take(0.0, int(RATE * QUOTA_DEBT_SECONDS) * 10) == QUOTA_DEBT_SECONDS
    assert bucket.debt(QUOTA_DEBT_SECONDS) == 0


def test_debt_is_owed_in_bytes_when_the_rate_changes():
    bucket = ByteBucket(RATE)
    owed = bucket.take(0.0, 2500)
    bucket.change(0.0, 4 * RATE)
    assert bucket.debt(0.0) == pytest.approx(owed / 4)
    bucket.change(0.0, RATE)
    assert bucket.debt(0.0) == pytest.approx(owed)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 2000)), min_size=1, max_size=200))
def test_who_waits_never_exceeds_the_rate_and_loses_none_of_it(steps):
    bucket, now, sent, begun = ByteBucket(RATE), 0.0, 0, None
    busy = 0.0  # time that was spent waiting because of the quota
    for pause, size in steps:
        now += pause
        begun = now if begun is None else begun
        delay = bucket.take(now, size)
        sent += size
        assert 0 <= delay <= QUOTA_DEBT_SECONDS
        busy += delay
        now += delay
        assert bucket.debt(now) == pytest.approx(0, abs=1e-6)
        # All is paid for: no more than the rate for the time, and one burst.
        assert sent <= RATE * (now - begun + QUOTA_BURST_SECONDS) + 1e-3
    # Nobody waits longer than what was sent costs.
    assert busy <= sent / RATE + 1e-6


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_connections_share_a_rate_by_what_they_send(sizes):
    bucket = ByteBucket(RATE)
    bucket.take(0.0, int(RATE * QUOTA_BURST_SECONDS))
    ready, sent = [0.0] * len(sizes), [0] * len(sizes)
    while min(ready) < 60:
        one = ready.index(min(ready))
        sent[one] += sizes[one] * 50
        ready[one] += bucket.take(ready[one], sizes[one] * 50)
    assert sum(sent) == pytest.approx(RATE * 60, rel=0.05)
    share = [count / size for count, size in zip(sent, sizes, strict=True)]
    assert max(share) - min(share) <= 2 * 50 + 0.1 * max(share)


def test_quotas_come_back_from_their_text():
    quotas = Quotas(
        {"scope:a": Quota(bytes_in=MIN_QUOTA_BYTES_PER_SECOND, streams=3), "user:b": Quota(connections=2)}, ["a"]
    )
    assert quotas.encode() == ["scope:a 1 bytes_in=65536 streams=3", "user:b 1 connections=2", "full a"]
    assert Quotas.decode(quotas.encode()) == quotas
    for text in ("2 streams=1", "", "1 bytes=7", "1 streams=x", "1 streams"):
        with pytest.raises(Invalid):
            Quota.decode(text)


def test_own_quota_comes_before_that_of_everybody_and_internal_scopes_have_none():
    quotas = Quotas({"scope:*": Quota(streams=1), "scope:a": Quota(streams=2), "user:*": Quota(connections=3)})
    assert [quotas.of_scope(name).streams for name in ("a", "b", "_system")] == [2, 1, 0]
    assert quotas.of_user("x").connections == 3
    assert quotas.of_user("") == NO_QUOTA


@pytest.mark.parametrize(
    ("subject", "quota", "why"),
    [
        ("scope:_system", Quota(streams=1), "can have no quota"),
        ("role:a", Quota(streams=1), "can have no quota"),
        ("scope:a b", Quota(streams=1), "can have no quota"),
        ("scope:a", Quota(bytes_in=1000), "too little"),
        ("scope:a", Quota(streams=-1), "no quota"),
        ("scope:a", Quota(connections=1), "counted per user"),
        ("user:a", Quota(streams=1), "counted per scope"),
        ("user:a", Quota(storage_bytes=1), "counted per scope"),
    ],
)
def test_quota_that_cannot_be_is_refused_with_the_reason(subject, quota, why):
    with pytest.raises(Invalid, match=why):
        quota.check(subject)
