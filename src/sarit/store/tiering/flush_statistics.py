"""What a flusher counts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_MAX_COMMIT_SAMPLES: Final = 10_000


@dataclass(slots=True)
class FlushStatistics:
    """Counters since the container opened; seconds and bytes."""

    checkpoints: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    commit_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_COMMIT_SAMPLES))
    storage_errors: int = 0
