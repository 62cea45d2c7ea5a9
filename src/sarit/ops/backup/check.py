"""Looks after a backup place: what is in it, whether it is whole, and what nobody needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from sarit.ops.backup.manifest import Manifest, Piece
    from sarit.ops.backup.pacer import Pacer, Progress
    from sarit.ops.backup.place import Place


@dataclass(slots=True)
class CheckReport:
    """The report of `verify_place`: what it read, and what is damaged."""

    backups: int = 0
    objects: int = 0
    bytes: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pruned:
    """The backups that were dropped, and what was deleted with them."""

    backups: list[int]
    objects: int
    bytes: int


async def read_manifests(place: Place) -> list[Manifest]:
    """Return the manifests of all backups, oldest first.  Raises Corrupt, Invalid (no backup place), Unavailable."""
    await place.require()
    return [await place.manifest(number) for number in await place.numbers()]


async def verify_place(place: Place, pacer: Pacer, progress: Progress) -> CheckReport:
    """Read every object that a backup names, and compare it with its digest.  Raises Invalid, Unavailable."""
    await place.require()
    report = CheckReport()
    pieces: dict[Piece, list[int]] = {}
    for number in await place.numbers():
        report.backups += 1
        try:
            for piece in (await place.manifest(number)).pieces():
                used = pieces.setdefault(piece, [])
                if number not in used:
                    used.append(number)
        except (Corrupt, Invalid) as error:
            report.damaged.append(str(error))
    progress.begin("objects", sum(piece.length for piece in pieces))
    for piece, used in pieces.items():
        await pacer.take(piece.length)
        try:
            await place.read(piece)
        except Corrupt as error:
            report.damaged.append(f"{error}; it is part of backup {', '.join(map(str, used))}")
        report.objects += 1
        report.bytes += piece.length
        progress.add(piece.length)
    return report


async def prune(place: Place, keep: int, *, force: bool) -> Pruned:
    """Delete all backups except the newest `keep`, and each object that no remaining backup refers to.

    Raises Corrupt (a backup that stays is damaged: nothing is deleted), Invalid, Unavailable (a backup runs)."""
    await place.require()
    await place.lock("prune", force=force)
    try:
        numbers = await place.numbers()
        dropped, kept = numbers[:-keep], numbers[-keep:]
        needed = {piece for number in kept for piece in (await place.manifest(number)).pieces()}
        # Deletes the manifests before the objects: a backup whose objects are being deleted must not look whole.
        for number in dropped:
            await place.delete_manifest(number)
        count = size = 0
        for piece in await place.pieces():
            if piece not in needed:
                await place.delete(piece)
                count, size = count + 1, size + piece.length
        return Pruned(dropped, count, size)
    finally:
        await place.unlock()
