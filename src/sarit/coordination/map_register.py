"""Reads the register of the container map, and changes it by compare-and-set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.coordination.container_map import ContainerMap, decode_map, encode_map
from sarit.core.errors import Conflict, Exists, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.coordination.port import Registers

MAP: Final = "map"
STORES: Final = "stores"


async def read_map(registers: Registers) -> tuple[ContainerMap, int] | None:
    """Return the map, and the version of its register; None: there is no map yet.  Raises Unavailable, Invalid."""
    found = await registers.get(MAP)
    return None if found is None else (decode_map(found.value), found.version)


async def write_map(registers: Registers, changed: ContainerMap, expected: int | None) -> None:
    """Write a map that was computed from the register's version `expected`; None: there was no map.

    Raises Conflict (the map was changed meanwhile: read it and decide again), Unavailable (the outcome is unknown)."""
    try:
        if expected is None:
            await registers.create(MAP, encode_map(changed))
        else:
            await registers.set(MAP, encode_map(changed), expected)
    except (Exists, NotFound) as error:
        raise Conflict(f"the map was changed meanwhile: {error}") from None


async def change_map(registers: Registers, change: Callable[[ContainerMap], ContainerMap]) -> ContainerMap | None:
    """Apply a pure function to the newest map; the function returns its argument to change nothing.

    Returns the map then; None: there is no map.  Raises Unavailable: the outcome is unknown, repeat the call."""
    while (found := await read_map(registers)) is not None:
        current, version = found
        changed = change(current)
        if changed is current:
            return current
        try:
            await write_map(registers, changed, version)
        except Conflict:
            continue
        return changed
    return None
