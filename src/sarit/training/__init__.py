"""Streams for training: shards, epochs and positions of a loader, whatever the framework.

Theory of operation.  An epoch is everything between two cuts of a stream.  A *plan* (`plan.py`) divides it into pieces
of some MiB each, by arithmetic on offsets alone: a piece has the events that begin between its two offsets, wherever
their boundaries are.  So all processes make the same plan, without asking each other, whatever a store knows of
boundaries.  The pieces are put into an order that the seed and the number of the epoch decide (`order.py`), and the
shards, one for each worker of each rank, take them in turn.

A shard reads its pieces in *blocks* (`blocks.py`): a number of events of a few pieces at once, which are shuffled in
memory.  Where an event stands in a shuffled block depends on where it is stored, and on nothing else.  So a position
(`state.py`) holds offsets alone: what is read of the pieces, the ranges of the block under way, and how many of its
events were handed out.  Who resumes reads that block again, and goes on in it.  Positions of all shards together say
what is left of an epoch, and any other number of shards may share that (`merge`).

Nothing here knows a framework: `sarit.torch`, `sarit.datasets` and `sarit.ray` stand on this room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sarit.training.frames import FixedFrames, PrefixedFrames
    from sarit.training.loader import StreamLoader
    from sarit.training.state import merge

_HOMES = {
    "FixedFrames": "sarit.training.frames",
    "PrefixedFrames": "sarit.training.frames",
    "StreamLoader": "sarit.training.loader",
    "merge": "sarit.training.state",
}

__all__ = ["FixedFrames", "PrefixedFrames", "StreamLoader", "merge"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'sarit.training' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
