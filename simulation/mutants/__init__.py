"""Bugs planted by name: the simulation must find each within 50 seeds (docs/testing.md has the table).

A mutant is a context manager that puts a wrong function in the place of a right one.
"""

from __future__ import annotations

from typing import Final

from simulation.mutants import appends, clients, controllers, coordination, groups, logs, segments, stores, tiering
from simulation.mutants.registry import Mutant, registered

MUTANTS: Final[dict[str, Mutant]] = registered()

__all__ = [
    "MUTANTS", "Mutant", "appends", "clients", "controllers", "coordination", "groups", "logs", "segments", "stores",
    "tiering",
]  # fmt: skip
