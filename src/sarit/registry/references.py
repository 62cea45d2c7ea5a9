"""References between schemas: the versions that they name, and the texts that a parser needs with a schema's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.registry.decisions import GroupRows
from sarit.registry.errors import BadReference, BadSchema, Missing, NotThere
from sarit.registry.values import FoundVersion, GroupName
from sarit.schemas.limits import MAX_SCHEMA_BYTES, MAX_SCHEMA_REFERENCES
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.registry.rows import Rows
    from sarit.registry.values import Reference, Schema


class References:
    """Follows references.  Schemas refer to versions that exist, and never change: there are no circles."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"<References in {self._rows!r}>"

    async def of_new(self, namespace: str, references: Sequence[Reference]) -> dict[str, str]:
        """Return the texts for a schema that is not stored yet, by name.  Raises BadReference, BadSchema."""
        try:
            return await self._texts(namespace, references, deleted=False)
        except NotThere as error:
            raise BadReference(str(error)) from None

    async def of_stored(self, schema: Schema) -> dict[str, str]:
        """Return the texts for a stored schema, by name.  Raises NotThere(VERSION)."""
        return await self._texts(schema.namespace, schema.references, deleted=True)

    async def require_live(self, namespace: str, references: Sequence[Reference]) -> None:
        """Check that references name versions that are not deleted.  Raises BadReference."""
        heads = await self._rows.heads([GroupName(namespace, one.group) for one in references])
        for reference in references:
            name = GroupName(namespace, reference.group)
            head = heads.get(name)
            found = [] if head is None else await self._rows.some_versions(name, head, [reference.version])
            if head is None or head.hidden or not found or found[0].deleted:
                raise BadReference(_missing(name, reference))

    async def versions(self, namespace: str, references: Sequence[Reference], *, deleted: bool) -> list[FoundVersion]:
        """Return the versions that references name, in order.  Raises NotThere(VERSION)."""
        found = []
        names = [GroupName(namespace, one.group) for one in references]
        heads = await self._rows.heads(names)
        for name, reference in zip(names, references, strict=True):
            head = GroupRows(name, heads.get(name), None).head
            rows = [] if head is None else await self._rows.some_versions(name, head, [reference.version])
            one = None
            if rows and (deleted or not rows[0].deleted):
                one = await self._rows.found(name, rows[0])
            if one is None:
                raise NotThere(Missing.VERSION, _missing(name, reference))
            found.append(one)
        return found

    async def _texts(self, namespace: str, references: Sequence[Reference], *, deleted: bool) -> dict[str, str]:
        texts: dict[str, str] = {}
        seen: set[tuple[str, GroupName, int]] = set()
        left = [(namespace, tuple(references))]
        size = 0
        while left:
            namespace, references = left.pop()
            for reference, found in zip(
                references, await self.versions(namespace, references, deleted=deleted), strict=True
            ):
                place = (reference.name, found.name, reference.version)
                if place in seen:
                    continue
                seen.add(place)
                text = found.schema.text
                if texts.setdefault(reference.name, text) != text:
                    raise BadSchema(f"two references are named {shown(reference.name)}, and are not the same schema")
                size += len(text)
                if len(seen) > MAX_SCHEMA_REFERENCES or size > MAX_SCHEMA_BYTES:
                    raise BadSchema(
                        f"a schema has at most {MAX_SCHEMA_REFERENCES} references, with those of its references, and "
                        f"{MAX_SCHEMA_BYTES:,} bytes together with them"
                    )
                if found.schema.references:
                    left.append((found.schema.namespace, found.schema.references))
            deleted = True  # of the references of references, which are stored
        return texts


def _missing(name: GroupName, reference: Reference) -> str:
    return f"reference {shown(reference.name)}: group {shown(str(name))} has no version {reference.version}"
