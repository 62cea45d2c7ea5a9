"""Bounds of the schema registry."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import MIB

# The largest body of a request: a schema of 1 MiB, each of its characters written as an escape of six.  Less than the
# HTTP port takes (`admin/limits.py`), so that the answer has the form that the client knows.
MAX_REGISTRY_BODY_BYTES: Final = 7 * MIB
# From a request to its answer; less than the HTTP port grants, for the same reason.
REGISTRY_ANSWER_SECONDS: Final = 20.0
# How many characters of a path the log shows.
MAX_LOGGED_PATH_CHARS: Final = 200
