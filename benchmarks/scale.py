"""How long measurements are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """The length of measurements: `quick` is not accurate enough for verdicts."""

    quick: bool
    long: bool

    def seconds(self, full: float, quick: float = 6.0) -> float:
        """The length of a measurement."""
        return quick if self.quick else full
