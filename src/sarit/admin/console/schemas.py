"""The schema registry: groups, their versions, and the text of each.  Nothing is changed here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call, for_all, whole_number
from sarit.admin.console.limits import CONSOLE_MAX_NAME_CHARS, CONSOLE_MAX_PAGE_ROWS, CONSOLE_PAGE_ROWS
from sarit.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.schema_view import GroupView, SchemasView
    from sarit.security.permissions import Caller


class SchemaCalls:
    """Calls on the schemas of a registry, for one caller."""

    def __init__(self, schemas: SchemasView, caller: Caller | None) -> None:
        self._schemas = schemas
        self._caller = caller

    def __repr__(self) -> str:
        return f"<SchemaCalls of {self._caller}>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api.  Names of groups may have any character, so they are parameters."""
        return [
            call("/schemas", self.groups),
            call("/schemas/group", self.group),
            call("/schemas/version", self.version),
        ]

    async def groups(self, request: Request) -> Any:
        """Return a page of groups.  Parameters: `q` (how the names begin), `offset`, `limit`."""
        offset = whole_number(request, "offset", 0, 0, 10**8)
        limit = whole_number(request, "limit", CONSOLE_PAGE_ROWS, 1, CONSOLE_MAX_PAGE_ROWS)
        page = await self._schemas.groups(self._caller, _text(request, "q"), offset, limit)
        return {"total": page.total, "offset": offset, "rows": await for_all(page.names, self._row)}

    async def _row(self, name: tuple[str, str]) -> dict[str, Any]:
        namespace, group = name
        row: dict[str, Any] = {"namespace": namespace, "group": group}
        try:
            found = await self._schemas.group(self._caller, namespace, group)
        except NotFound:  # deleted since the names were read
            return row | {"gone": True}
        return row | _summary(found)

    async def group(self, request: Request) -> Any:
        """Return a group with its versions.  Parameters: `namespace`, `group`."""
        return asdict(await self._schemas.group(self._caller, _text(request, "namespace"), _text(request, "group")))

    async def version(self, request: Request) -> Any:
        """Return a version with its text.  Parameters: `namespace`, `group`, `number`."""
        number = whole_number(request, "number", 0, 1, (1 << 31) - 1)
        found = await self._schemas.version(self._caller, _text(request, "namespace"), _text(request, "group"), number)
        return asdict(found.row) | {
            "text": found.text,
            "references": [{"name": name, "group": group, "version": at} for name, group, at in found.references],
            "referrers": [{"group": group, "version": at} for group, at in found.referrers],
        }


def _summary(found: GroupView) -> dict[str, Any]:
    left = [one for one in found.versions if not one.deleted]
    last = next(reversed(left or found.versions), None)
    return {
        "versions": len(left), "deleted": len(found.versions) - len(left), "policy": found.policy,
        "own_policy": found.own_policy, "mode": found.mode, "latest": None if last is None else asdict(last),
    }  # fmt: skip


def _text(request: Request, name: str) -> str:
    """Return a parameter that is a name.  Raises Invalid."""
    found = request.query_params.get(name, "")
    if len(found) > CONSOLE_MAX_NAME_CHARS:
        raise Invalid(f"{name}: at most {CONSOLE_MAX_NAME_CHARS} characters")
    return found
