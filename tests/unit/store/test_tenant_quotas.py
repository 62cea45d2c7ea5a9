"""Quotas as one store applies them."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.limits import QUOTA_MEASURE_SECONDS
from sarit.security.limits import QUOTA_BURST_SECONDS
from sarit.security.quotas import Quota, Quotas
from sarit.store.limits import MAX_CHARGED
from sarit.store.metering.tenant_quotas import TenantQuotas

RATE = 1_000_000
QUOTAS = Quotas({"scope:a": Quota(bytes_in=RATE, bytes_out=RATE), "user:u": Quota(bytes_in=RATE // 2, connections=2)})
BURST = int(RATE * QUOTA_BURST_SECONDS)


class Clock:
    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


class Tables:
    """Of clients, as the containers of a store hold them."""

    def __init__(self) -> None:
        self.stored, self.epoch, self.counts = 0, 1, 0

    def held(self) -> frozenset[tuple[int, int]]:
        return frozenset([(0, self.epoch)])

    async def count(self, scope: str) -> int:
        self.counts += 1
        return self.stored


class Listener:
    notified = 0

    def quotas_changed(self) -> None:
        self.notified += 1


def received(quotas: TenantQuotas, scope: str, user: str, size: int) -> float:
    """How long the next append waits."""
    quotas.received(scope, user, size)
    return quotas.write_delay(scope, user)


@pytest.fixture
def quotas():
    made = TenantQuotas(Clock(), Tables())
    made.use(QUOTAS, 1)
    return made


def test_scope_over_its_rate_waits_and_another_does_not(quotas):
    assert received(quotas, "a", "", BURST + RATE) == pytest.approx(1.0)
    assert received(quotas, "b", "", 100 * RATE) == 0


def test_user_and_scope_are_both_charged_and_the_longer_wait_counts(quotas):
    assert received(quotas, "a", "u", BURST + RATE) == pytest.approx((BURST + RATE) / (RATE / 2) - QUOTA_BURST_SECONDS)
    assert received(quotas, "b", "u", 1) > 2
    assert received(quotas, "b", "v", 1) == 0


def test_each_of_several_stores_applies_its_share(quotas):
    quotas.use(QUOTAS, 4)
    assert received(quotas, "a", "", BURST // 4 + RATE) == pytest.approx(4.0)


def test_reads_wait_for_what_was_sent(quotas):
    assert quotas.read_delay("a", "") == 0
    quotas.sent("a", "", BURST + RATE)
    assert quotas.read_delay("a", "") == pytest.approx(1.0)
    assert quotas.read_delay("b", "") == 0
    Clock.seconds, before = Clock.seconds + 1.01, Clock.seconds
    assert quotas.read_delay("a", "") == 0
    Clock.seconds = before


def test_who_waits_hears_of_other_quotas_and_a_quota_that_is_gone_is_lifted(quotas):
    quotas.received("a", "", BURST + 5 * RATE)
    waiting = Listener()
    quotas.wait(waiting)
    quotas.use(QUOTAS, 1)
    assert waiting.notified == 0  # nothing has changed
    quotas.use(Quotas(), 1)
    assert waiting.notified == 1
    assert not quotas.active
    assert quotas.write_delay("a", "") == 0


def test_scope_that_is_full_is_so_until_it_is_not(quotas):
    quotas.use(Quotas(QUOTAS.by_subject, ["a"]), 1)
    assert quotas.is_full("a")
    assert not quotas.is_full("b")
    quotas.use(QUOTAS, 1)
    assert not quotas.is_full("a")


def test_scope_is_full_for_a_link_though_nobody_has_a_quota():
    made, switched = TenantQuotas(Clock(), Tables()), []
    made.when_switched(lambda: switched.append(made.active))
    made.use(Quotas(full=["s"]), 1)
    assert made.active
    assert made.is_full("s")
    assert not made.is_full("a")
    made.use(Quotas(), 1)
    assert switched == [True, False]
    assert not made.is_full("s")


def test_connections_of_a_user_are_counted_also_before_there_is_a_quota():
    quotas = TenantQuotas(Clock(), Tables())
    assert quotas.connected("u")
    assert quotas.connected("u")
    quotas.use(QUOTAS, 1)
    assert not quotas.connected("u")
    assert quotas.connections_refused == 1
    for _ in range(3):
        quotas.disconnected("u")
    assert quotas.connected("u")


def test_names_from_clients_do_not_fill_the_memory():
    quotas = TenantQuotas(Clock(), Tables())
    quotas.use(Quotas({"scope:*": Quota(bytes_in=RATE)}), 1)
    for number in range(MAX_CHARGED + 10):
        quotas.received(f"s{number}", "", 1)
    assert len(list(quotas.scopes_charged())) == MAX_CHARGED


def test_tables_that_clients_make_are_counted_for_their_scope():
    async def main():
        tables = Tables()
        quotas = TenantQuotas(Clock(), tables)

        async def create(scope: str, count: int, *, made: bool = True) -> list[bool]:
            return [await quotas.create(scope) and not (made and quotas.creation_ended(scope)) for _ in range(count)]

        quotas.use(Quotas({"scope:a": Quota(segments=4), "scope:*": Quota(bytes_in=RATE)}), 2)
        assert await create("a", 3) == [True, True, False]  # half of it, in each of two stores
        quotas.removed("a")
        assert await create("a", 2) == [True, False]
        assert all(await create("b", 10))
        for _ in range(5):
            quotas.removed("a")
        assert await create("a", 1) == [True]
        assert tables.counts == 1
        quotas.use(Quotas({"scope:*": Quota(segments=1)}), 1)
        for number in range(MAX_CHARGED + 10):
            assert await create(f"s{number}", 1)
        assert len(quotas._made) == MAX_CHARGED

    asyncio.run(main())


def test_tables_are_counted_again_where_what_is_known_may_be_wrong(monkeypatch):
    async def main():
        tables = Tables()
        tables.stored = 1  # of before this process
        quotas = TenantQuotas(Clock(), tables)
        quotas.use(Quotas({"scope:a": Quota(segments=3)}), 1)
        assert [await quotas.create("a") for _ in range(3)] == [True, True, False]
        tables.stored, tables.epoch = 0, 2  # it went with its container; two are being made
        assert [await quotas.create("a") for _ in range(2)] == [True, False]
        for _ in range(3):
            quotas.creation_ended("a")
        assert not await quotas.create("a")
        monkeypatch.setattr(Clock, "seconds", Clock.seconds + QUOTA_MEASURE_SECONDS)
        assert await quotas.create("a"), "none of them was made, and nobody said so"
        assert tables.counts == 3
        assert quotas._making == {"a": 1}

    asyncio.run(main())
