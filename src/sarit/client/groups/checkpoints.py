"""The checkpoints of a reader group (pure; Pravega `CheckpointState`).  `state.py` says what they are for.

A reader that begins a checkpoint may clear the ones before it, even completed ones: ours and Java's do so with each
automatic checkpoint.  A process that waits for a checkpoint may then see its completion and its clearing in one fetch.
So each copy of the state retains the positions of the last checkpoints that it saw completed and then cleared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.groups.values import Offsets

SILENT: Final = "_SILENT_"
# More than are begun in the seconds between two fetches of a process that waits for one.
MAX_CLEARED_CHECKPOINTS: Final = 32


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a group.

    `names`: those known, in order.  `pending`: name -> the readers that have not passed it.
    `positions`: name -> the positions recorded so far.  `last`: the positions of the last completed checkpoint that was
    not silent; `published`: whether its cut was reported to the controller, for retention.  `cleared`: the positions of
    the newest few checkpoints that were completed and then cleared, in memory only."""

    names: tuple[str, ...] = ()
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    positions: Mapping[str, Offsets] = field(default_factory=dict)
    last: Offsets | None = None
    published: bool = True
    cleared: Mapping[str, Offsets] = field(default_factory=dict, compare=False)

    def next_for(self, reader: str) -> str | None:
        """Return the oldest checkpoint that a reader has to pass."""
        return next((name for name in self.names if reader in self.pending.get(name, ())), None)

    def completed(self, name: str) -> Offsets | None:
        """Return the positions of a completed checkpoint, or None while it is pending and when it is forgotten."""
        return None if name in self.pending else self.positions.get(name, self.cleared.get(name))

    @property
    def outstanding(self) -> list[str]:
        """The pending checkpoints without the silent ones."""
        return [name for name in self.names if name in self.pending and not is_silent(name)]

    def begin(self, name: str, readers: tuple[str, ...], unassigned: Offsets) -> Checkpoints:
        """Begin a checkpoint, unless its name is known: a repeated request changes nothing."""
        if name in self.positions:
            return self
        # Without readers the checkpoint is complete at once: the positions of all segments are in `unassigned`.
        pending = {**self.pending, name: readers} if readers else self.pending
        positions = {**self.positions, name: dict(unassigned)}
        # A new checkpoint of an old name: `completed` must not answer with the positions of the old one.
        cleared = {other: at for other, at in self.cleared.items() if other != name}
        return replace(self, names=(*self.names, name), pending=pending, positions=positions, cleared=cleared)

    def passed(self, name: str, reader: str, at: Offsets) -> Checkpoints:
        """Record that a reader passes a checkpoint at its positions.  Raises Conflict when it has passed it before."""
        readers = self.pending.get(name)
        # The checkpoint was completed, abandoned or cleared meanwhile.
        if readers is None:
            return self
        if reader not in readers:
            raise Conflict(f"reader {reader} has passed checkpoint {name} before")
        left = tuple(other for other in readers if other != reader)
        positions = {**self.positions, name: {**self.positions[name], **at}}
        if left:
            return replace(self, pending={**self.pending, name: left}, positions=positions)
        pending = {other: waiting for other, waiting in self.pending.items() if other != name}
        # A silent checkpoint is not handed out: what users of the readers stored is of an earlier checkpoint, and a
        # reset or retention must not go beyond that.
        if is_silent(name):
            return replace(self, pending=pending, positions=positions)
        return replace(self, pending=pending, positions=positions, last=positions[name], published=False)

    def without_reader(self, reader: str, at: Offsets) -> Checkpoints:
        """Remove a reader that leaves: its open checkpoints are passed at its last positions."""
        made = self
        # Pass the checkpoints from the oldest on, as a reader does, so that `last` becomes the newest one.
        for name in self.names:
            if reader in self.pending.get(name, ()):
                made = made.passed(name, reader, at)
        return made

    def without(self, names: frozenset[str]) -> Checkpoints:
        """Remove these checkpoints."""
        return replace(
            self,
            names=tuple(name for name in self.names if name not in names),
            pending={name: readers for name, readers in self.pending.items() if name not in names},
            positions={name: at for name, at in self.positions.items() if name not in names},
        )

    def since(self, name: str) -> Checkpoints:
        """Remove the checkpoints before `name`, if that is known."""
        if name not in self.names:
            return self
        # Pending ones before it are abandoned: their readers find them gone, and pass the next one.
        before = self.names[: self.names.index(name)]
        done = {**self.cleared, **{other: self.positions[other] for other in before if other not in self.pending}}
        return replace(self.without(frozenset(before)), cleared=dict(list(done.items())[-MAX_CLEARED_CHECKPOINTS:]))


def is_silent(checkpoint: str) -> bool:
    """Return whether readers pass a checkpoint without handing it out."""
    return SILENT in checkpoint
