"""Which queries can follow the tail of a stream: filters and projections of one stream, event by event (pure).

The answer for what is appended is then that of the query over it alone, and answers follow one another.  An aggregate
would need all events, a join a state: both are refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_NOTHING: Final[tuple[object, ...]] = (None, "", [], {}, False)
# Parts of a SELECT that need more than one event, and what they are called.
_PARTS: Final[Mapping[str, str]] = {
    "group_expressions": "GROUP BY", "group_sets": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY",
    "sample": "a sample",
}  # fmt: skip
_CLASSES: Final[Mapping[str, str]] = {"WINDOW": "a window function", "SUBQUERY": "a subquery"}


class NotFollowable(Invalid):
    """A query that has no answer while its stream goes on."""


def check_followable(statement: Mapping[str, Any], aggregates: Collection[str]) -> None:
    """Check that a parsed query filters and projects one stream.  `aggregates`: names of aggregate functions.

    Raises NotFollowable, with the part that does not."""
    node = statement["node"]
    found = _refused(node, aggregates)
    if found is not None:
        raise NotFollowable(
            f"a query that follows a stream filters and projects its events one by one, and this one has {found}: "
            "leave it out, or ask without following"
        )


def _refused(node: Mapping[str, Any], aggregates: Collection[str]) -> str | None:
    if node.get("type") != "SELECT_NODE":
        return "a UNION, or another set operation"
    if (node.get("cte_map") or {}).get("map"):
        return "a WITH"
    for modifier in node.get("modifiers", ()):
        return str(modifier.get("type", "")).removesuffix("_MODIFIER").replace("_", " ")
    for part, name in _PARTS.items():
        if node.get(part) not in _NOTHING:
            return name
    source = node.get("from_table") or {}
    if source.get("type") != "BASE_TABLE":
        return "no single stream in FROM"
    if source.get("sample") is not None:
        return _PARTS["sample"]
    for found in _nodes([node.get("select_list"), node.get("where_clause")]):
        kind, name = found.get("class"), str(found.get("function_name", "")).lower()
        if kind in _CLASSES:
            return _CLASSES[str(kind)]
        if kind == "FUNCTION" and name in aggregates:
            return f"an aggregate ({name})"
    return None


def _nodes(root: Any) -> Iterator[Mapping[str, Any]]:
    left = [root]
    while left:
        found = left.pop()
        if isinstance(found, list):
            left.extend(found)
        elif isinstance(found, dict):
            yield found
            left.extend(found.values())
