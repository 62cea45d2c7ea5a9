"""Files and directory entries of the simulated disk: durable, cached, and pending changes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SectorWrite:
    """Part of an unsynced write that the disk does as a whole or not at all."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LengthChange:
    """An unsynced change of a file's length."""

    length: int


@dataclass(slots=True)
class Inode:
    """A file's content: on the disk, and in the cache where that differs."""

    durable: bytearray = field(default_factory=bytearray)
    cached: bytearray | None = None
    pending: list[SectorWrite | LengthChange] = field(default_factory=list)

    @property
    def content(self) -> bytearray:
        """What a reader sees."""
        return self.durable if self.cached is None else self.cached

    def change(self, change: SectorWrite | LengthChange) -> None:
        """Change the cache."""
        if self.cached is None:
            self.cached = bytearray(self.durable)
        apply_change(self.cached, change)
        self.pending.append(change)


def apply_change(content: bytearray, change: SectorWrite | LengthChange) -> None:
    if isinstance(change, LengthChange):
        del content[change.length :]
        content.extend(bytes(change.length - len(content)))
        return
    end = change.offset + len(change.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[change.offset : end] = change.data


@dataclass(frozen=True, slots=True)
class EntryChange:
    """An unsynced change of a directory: `source` (None for a creation) gives way to `target` (None for a removal)."""

    source: str | None
    target: str | None
    inode: Inode


def directory_of(change: EntryChange) -> str:
    return (change.target or change.source or "").rpartition("/")[0]


def apply_entry(names: dict[str, Inode], change: EntryChange) -> None:
    if change.source is not None:
        names.pop(change.source, None)
    if change.target is not None:
        names[change.target] = change.inode
