"""The units of times in data that another schema wrote.

Resolution leaves a number of milliseconds as it is where the reader's schema has microseconds.  Columns are to hold the
time that the writer meant, so the types of a reader get the units of the writer's schema.  Pure.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.schemas.avro_schema import fastavro
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCAL: Final = "local-"
_TIMES: Final = ("timestamp-millis", "timestamp-micros")


def written_types(fields: Mapping[str, Mapping[str, Any]], written: Any) -> dict[str, Any]:
    """Return the types of a reader's fields, by name, with the units of the writer's schema.

    `fields`: of `avro_schema.resolved`, by name.  `written`: JSON of an Avro schema.  Raises Invalid, also for a unit
    that columns do not have."""
    named: dict[str, Any] = {}
    try:
        parsed = fastavro().parse_schema(copy.deepcopy(written), named)
    except Exception as error:  # fastavro raises several kinds
        raise Invalid(f"the writer's schema is no Avro schema: {shown(str(error))}") from None
    made = _WrittenUnits(named).resolve({"type": "record", "fields": list(fields.values())}, parsed)
    return {one["name"]: one["type"] for one in made["fields"]}


class _WrittenUnits:
    """The types of one reader with the units of one writer.  `named`: the writer's types.  Internal."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        # Pairs are compared once, since named types may be used in many places.
        self._found: dict[tuple[int, int], Any] = {}

    def resolve(self, read: Any, written: Any) -> Any:
        """Return a type of the reader with the units of the writer's."""
        key = id(read), id(written)
        if key not in self._found:
            self._found[key] = self._made(read, written)
        return self._found[key]

    def _made(self, read: Any, written: Any) -> Any:
        if isinstance(read, list):
            return [self.resolve(one, written) for one in read]
        theirs = written if isinstance(written, list) else [written]
        kinds = [self._named.get(one, {"type": one}) if isinstance(one, str) else one for one in theirs]
        made = [self._one(read, one) for one in kinds if one["type"] == read["type"]]
        if any(one != made[0] for one in made[1:]):
            raise Invalid("the writer's schema has a union of times in different units: read the field as a long")
        return made[0] if made else read

    def _one(self, read: Any, written: Any) -> Any:
        """Return a type with the units of a writer's type of the same kind."""
        match read["type"]:
            case "record":
                types = {one["name"]: one["type"] for one in written["fields"]}
                return {**read, "fields": [self._field(one, types) for one in read["fields"]]}
            case "array":
                return {**read, "items": self.resolve(read["items"], written["items"])}
            case "map":
                return {**read, "values": self.resolve(read["values"], written["values"])}
        ours, theirs = (one.get("logicalType", "").removeprefix(_LOCAL) for one in (read, written))
        if ours in _TIMES and theirs.startswith("timestamp-") and ours != theirs:
            if theirs not in _TIMES:
                raise Invalid(f"the writer's schema has a {theirs}, which is not read as a {ours}: read it as a long")
            return {**read, "logicalType": theirs}
        return read

    def _field(self, read: Any, types: Mapping[str, Any]) -> Any:
        found = next((types[name] for name in (read["name"], *read.get("aliases", ())) if name in types), None)
        return read if found is None else {**read, "type": self.resolve(read["type"], found)}
