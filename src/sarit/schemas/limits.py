"""Bounds of schemas and codecs."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# -- command line and Spark --------------------------------------------------------------------
MAX_JSON_BATCH_BYTES: Final = 256 * MIB  # the most bytes of payloads that are decoded at once
