"""What a request of Pravega's API names."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Invalid
from sarit.registry.errors import Missing, NotThere
from sarit.registry.names import check_group, check_namespace
from sarit.registry.pravega.fields import Fields, shown
from sarit.registry.pravega.formats import new_schema, read_schema
from sarit.registry.values import GroupName

if TYPE_CHECKING:
    from sarit.registry.pravega.formats import GivenSchema
    from sarit.registry.registry import Registry
    from sarit.registry.values import NewSchema
    from sarit.registry.web import Asked

_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_MOST: Final = (1 << 31) - 1  # Java's int


def namespace_of(asked: Asked) -> str:
    """Return the namespace of a request; the one in the path counts.  Raises Invalid."""
    return check_namespace(asked.path.get("namespace", asked.query.get("namespace", "")))


def group_of(asked: Asked) -> GroupName:
    """Return the group in the path of a request.  Raises Invalid."""
    return check_group(GroupName(namespace_of(asked), asked.path["group"]))


def number_in(asked: Asked, name: str, missing: Missing) -> int:
    """Return a number in the path.  Raises Invalid; NotThere: no such thing has so large a number."""
    text = asked.path[name]
    if _NUMBER.fullmatch(text) is None:
        raise Invalid(f"{name} is {shown(text)}: give a whole number, 0 or more")
    number = int(text)
    if number > _MOST - 1:
        raise NotThere(missing, f"there is no {missing.value} {number}")
    return number


def limit_of(asked: Asked, default: int, most: int) -> int:
    """Return how many items a page may have at most.  Raises Invalid."""
    text = asked.query.get("limit", "")
    if not text:
        return default
    if _NUMBER.fullmatch(text) is None or int(text) == 0:
        raise Invalid(f"limit is {shown(text)}: give a whole number above 0")
    return min(int(text), most)


async def new_schema_of(registry: Registry, given: GivenSchema) -> NewSchema:
    """Return a schema to be registered, parsed where all long computing is done.  Raises BadSchema."""
    if given.takes_long:
        return await registry.compute(partial(new_schema, given), len(given.data))
    return new_schema(given)


def schema_of(asked: Asked) -> GivenSchema:
    """Return the SchemaInfo that is the body of a request.  Raises Invalid."""
    return read_schema(Fields(asked.body))
