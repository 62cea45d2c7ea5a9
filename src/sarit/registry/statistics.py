"""Counts of what the registry was asked and has answered, for the metrics.  Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid, SaritError
from sarit.core.histogram import CALL_LATENCIES, Histogram
from sarit.registry.errors import Incompatible, ReadOnly, WrongKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.registry.values import Registered

# The first kind that an error is of decides.
_OUTCOMES: Final = (
    (Incompatible, "incompatible"),
    (WrongKind, "incompatible"),
    (ReadOnly, "read_only"),
    (Invalid, "invalid"),
)


@dataclass(eq=False, slots=True)
class Statistics:
    """Counts of one process.

    `now`: returns monotonic seconds.  `requests`: by face, call and status.  `seconds`: from a request to its answer,
    by face and call.  `registrations`: by outcome.  `body_bytes`: of the bodies of requests under way."""

    now: Callable[[], float]
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    body_bytes: int = 0
    registrations: Counter[str] = field(default_factory=Counter)
    seconds: dict[tuple[str, str], Histogram] = field(default_factory=dict)

    def answered(self, face: str, call: str, status: int, seconds: float) -> None:
        """Count a request that was answered after so many seconds."""
        self.requests[face, call, status] += 1
        found = self.seconds.get((face, call))
        if found is None:
            found = self.seconds[face, call] = Histogram(CALL_LATENCIES)
        found.observe(seconds)

    def registered(self, done: Registered) -> None:
        """Count a registration that succeeded."""
        self.registrations["new" if done.new else "known"] += 1

    def refused(self, error: SaritError) -> None:
        """Count a registration that raised an error."""
        self.registrations[next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "failed")] += 1
