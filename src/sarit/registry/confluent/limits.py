"""Bounds of Confluent's API."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# Of subjects or versions, and of schemas with their texts, in one answer.
MAX_LISTED_NAMES: Final = 20_000
MAX_LISTED_SCHEMAS: Final = 1000
# The texts of the schemas in one list.
MAX_LISTED_SCHEMA_CHARS: Final = 32 * MIB
# Groups that a list reads at once.
LISTED_GROUPS_PAGE: Final = 1000
