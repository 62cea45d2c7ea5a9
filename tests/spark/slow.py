"""What a busy machine does to Spark itself."""

from __future__ import annotations

import pytest

SPARK_MAY_BE_SLOW = pytest.mark.flaky(reruns=5, only_rerun=["Python worker failed to connect back"])
"""Spark waits exactly 10 s for a Python worker that it has started, and no setting changes that.

On a machine with load 20 the imports of a worker take longer.  Only this failure, which is Spark's own, is tried again:
each test must work on streams of its own, as often as it runs.  See docs/internals/test-environment.md."""
