"""Sizes of the controller's records."""

from __future__ import annotations

from typing import Final

CREATION_ID_BYTES: Final = 16
