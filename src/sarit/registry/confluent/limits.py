"""Bounds of Confluent's API."""

from __future__ import annotations

from typing import Final

# Of subjects or versions, and of schemas with their texts, in one answer.
MAX_LISTED_NAMES: Final = 20_000
MAX_LISTED_SCHEMAS: Final = 1000
# Groups that a list reads at once.
LISTED_GROUPS_PAGE: Final = 1000
