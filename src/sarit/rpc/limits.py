"""Bounds of the gRPC port that `core/limits.py` has not, by name, unit last."""

from __future__ import annotations

from typing import Final

# A connection that has begun no call for so long after it opened is sent away: it holds a place.
GRPC_FIRST_CALL_SECONDS: Final = 60.0
