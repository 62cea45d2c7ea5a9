"""Which micro-batches of streaming queries are under way, by the checkpoints: Spark writes the offsets of a micro-batch
down before it runs it, and notes its commit after it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def under_way(checkpoints: Path) -> dict[str, int]:
    """Query -> its micro-batch that was begun and is not completed."""
    found = {}
    for query in checkpoints.iterdir() if checkpoints.exists() else ():
        begun = _newest(query / "offsets")
        if begun is not None and not (query / "commits" / str(begun)).exists():
            found[query.name] = begun
    return found


def query_names(checkpoints: Path) -> dict[str, str]:
    """Id of a query -> its name, as the checkpoint is named."""
    return {json.loads(path.read_text())["id"]: path.parent.name for path in checkpoints.glob("*/metadata")}


def _newest(log: Path) -> int | None:
    try:
        return max((int(entry.name) for entry in log.iterdir() if entry.name.isdecimal()), default=None)
    except FileNotFoundError:
        return None
