"""Mutants of quotas."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sarit.security.byte_bucket import ByteBucket
from sarit.store.metering.tenant_quotas import TenantQuotas
from sarit.store.server.connection_quotas import ConnectionQuotas
from simulation.mutants.patching import patched
from simulation.mutants.registry import mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEST = "tests/unit/store/server/test_connection_quotas.py::test"


@mutant("bytes over a quota wait", found_by=f"{_TEST}_connection_over_its_quota_is_not_read_from_until_it_has_paid")
@contextmanager
def quota_not_applied() -> Iterator[None]:
    """A connection is charged, and read from all the same."""

    def wrong(self: Any, scope: str, user: str) -> float:
        return 0.0

    with patched(TenantQuotas, TenantQuotas.write_delay, wrong):
        yield


@mutant("bytes over a quota wait", found_by=f"{_TEST}_stop_ends_when_the_quota_is_removed")
@contextmanager
def quota_never_lifted() -> Iterator[None]:
    """A connection that waits does not hear that the quotas have changed."""

    def wrong(self: Any) -> None:
        return

    with patched(ConnectionQuotas, ConnectionQuotas.quotas_changed, wrong):
        yield


@mutant("bytes over a quota wait", found_by="tests/unit/security/test_quotas.py::test_debt_has_a_bound")
@contextmanager
def quota_debt_without_a_bound() -> Iterator[None]:
    """A quota that many share is owed for as long as it takes."""

    def wrong(self: Any, now: float, size: int) -> float:
        self._paid_until = max(self._paid_until, now - 0.5) + size / self.rate
        return float(max(0.0, self._paid_until - now))

    with patched(ByteBucket, ByteBucket.take, wrong):
        yield
