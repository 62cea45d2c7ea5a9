"""Mutants: named faults in the code that the simulation must find within 50 seeds (table in docs/testing.md).

A mutant is a context manager that replaces a right function by a wrong one.
"""

from __future__ import annotations

from typing import Final

from simulation.mutants import (
    appends,
    backups,
    clients,
    committers,
    continuous,
    controllers,
    coordination,
    damage,
    groups,
    jobs,
    ledger_ends,
    ledgers,
    logs,
    mirror_segments,
    mirrors,
    ownership,
    quotas,
    schemas,
    search,
    segments,
    sessions,
    stores,
    structures,
    tiering,
)
from simulation.mutants.registry import Mutant, registered

MUTANTS: Final[dict[str, Mutant]] = registered()

__all__ = [
    "MUTANTS", "Mutant", "appends", "backups", "clients", "committers", "continuous", "controllers", "coordination",
    "damage", "groups", "jobs", "ledger_ends", "ledgers", "logs", "mirror_segments", "mirrors", "ownership", "quotas",
    "schemas", "search", "segments", "sessions", "stores", "structures", "tiering",
]  # fmt: skip
