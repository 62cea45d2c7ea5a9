"""Whether data of an Avro schema from outside can be coded without harm.  Pure.

fastavro recurses in C, where too many levels end the process. It makes as many items of an array as the data say: where
an item takes no bytes, a payload of ten bytes says a billion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sarit.schemas.avro_types import AvroType


class Shape(NamedTuple):
    """The shape of a schema's data.

    `levels`: the most types within each other.  `recursive`: a type contains itself, so that data may have any number
    of levels.  `array_of_nothing`: an array's items may take no bytes."""

    levels: int
    recursive: bool
    array_of_nothing: bool


def shape_of(root: AvroType) -> Shape:
    """Return the shape of a schema's data; nothing recurses here."""
    levels: dict[int, int] = {}
    empty: dict[int, bool] = {}  # whether data of the type may take no bytes
    open_types: set[int] = set()
    recursive = array_of_nothing = False
    left: list[tuple[AvroType, bool]] = [(root, False)]
    while left:
        one, done = left.pop()
        key = id(one)
        if done:
            open_types.discard(key)
            inner = [id(child) for child in one.children]
            # A type that contains itself has no levels yet: its data do not end without a union, which takes a byte.
            levels[key] = 1 + max((levels.get(child, 0) for child in inner), default=0)
            empty[key] = _may_be_empty(one, [empty.get(child, False) for child in inner])
            if one.kind == "array" and empty[inner[0]]:
                array_of_nothing = True
        elif key in open_types:
            recursive = True
        elif key not in levels:
            open_types.add(key)
            left.append((one, True))
            left.extend((child, False) for child in one.children)
    return Shape(levels[id(root)], recursive, array_of_nothing)


def _may_be_empty(one: AvroType, inner: list[bool]) -> bool:
    if one.kind == "record":
        return all(inner)
    return one.kind == "null" or (one.kind == "fixed" and one.size == 0)
