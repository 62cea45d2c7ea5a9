"""Key-value tables: lists, and pages of entries."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import call, page_of, whole_number
from sarit.admin.console.documents import bytes_document
from sarit.admin.console.limits import CONSOLE_SHOWN_VALUE_BYTES, CONSOLE_TABLE_ROWS
from sarit.admin.console.names import TABLES
from sarit.client.tables.layout import IN_BASE64, following
from sarit.core.errors import Invalid, NotFound

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.names import NameLists
    from sarit.client.aio import Client
    from sarit.client.tables.layout import Entry, TableConfig


class TableCalls:
    """Calls on key-value tables."""

    def __init__(self, client: Client, lists: NameLists) -> None:
        self._client = client
        self._lists = lists

    def __repr__(self) -> str:
        return "<TableCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        return [call("/tables", self.tables), call("/tables/{scope}/{table}", self.entries)]

    async def tables(self, request: Request) -> Any:
        """A page of tables."""
        return await page_of(request, self._lists, TABLES, self._row)

    async def _row(self, name: str) -> dict[str, Any]:
        try:
            return {"table": name} | _config_document(await self._client.table(name).config())
        except NotFound:
            return {"table": name, "gone": True}

    async def entries(self, request: Request) -> Any:
        """A page of entries in the order of their keys.

        Parameters: `prefix` of the primary keys; or `key`, one of them, both as text or as "base64:" and base64;
        `after`: what `next` was before."""
        name = f"{request.path_params['scope']}/{request.path_params['table']}"
        limit = whole_number(request, "limit", CONSOLE_TABLE_ROWS, 1, CONSOLE_TABLE_ROWS)
        table = self._client.table(name)
        config = await table.config()
        bounds = _bounds(request, config)
        rows: list[Entry] = []
        # Every table with secondary keys is scanned from a primary key on: entries before `after` are left out.
        after = _key(request, config)
        scan = table.scan(**bounds, page_entries=limit + 1)
        more = False
        async with aclosing(scan) as found:  # type: ignore[type-var]
            async for entry in found:
                if after and entry.primary + entry.secondary <= after:
                    continue
                if len(rows) == limit:
                    more = True
                    break
                rows.append(entry)
        last = base64.urlsafe_b64encode(rows[-1].primary + rows[-1].secondary).decode() if more else ""
        return {"table": name, "rows": list(map(_entry_document, rows)), "next": last} | _config_document(config)


def _bounds(request: Request, config: TableConfig) -> dict[str, bytes]:
    after = _key(request, config)
    prefix, key = _asked_bytes(request, "prefix", config), _asked_bytes(request, "key", config)
    if key:
        if len(key) != config.primary_key_bytes:
            raise Invalid(f"primary keys of this table have {config.primary_key_bytes} bytes, not {len(key)}")
        if not config.secondary_key_bytes or not after:
            return {"primary": key}
        return {"primary": key, "first": after[config.primary_key_bytes :]}
    if not after:
        return {"prefix": prefix} if prefix else {}
    first = after[: config.primary_key_bytes]
    if not config.secondary_key_bytes:
        # At the key after it, so that no page begins with what the page before ended with.
        first = following(first) or first
    return {"first": first} | ({"last": prefix} if prefix else {})


def _asked_bytes(request: Request, name: str, config: TableConfig) -> bytes:
    """A parameter with a key, or the beginning of one.  Raises Invalid."""
    text = request.query_params.get(name, "")
    encoded = text.removeprefix(IN_BASE64)
    if encoded == text:
        found = text.encode(errors="replace")
    else:
        try:
            found = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise Invalid(f"{name}: what follows {IN_BASE64} is not base64") from None
    if len(found) > config.primary_key_bytes:
        raise Invalid(f"primary keys of this table have {config.primary_key_bytes} bytes: the {name} is longer")
    return found


def _key(request: Request, config: TableConfig) -> bytes:
    """The last key of the page before; empty: there was none.  Raises Invalid."""
    try:
        found = base64.b64decode(request.query_params.get("after", ""), b"-_", validate=True)
    except ValueError:
        raise Invalid("after: give what next was") from None
    if found and len(found) != config.primary_key_bytes + config.secondary_key_bytes:
        raise Invalid("after: that is no key of this table")
    return found


def _config_document(config: TableConfig) -> dict[str, Any]:
    return {
        "partitions": config.partitions,
        "primary_key_bytes": config.primary_key_bytes,
        "secondary_key_bytes": config.secondary_key_bytes,
    }


def _entry_document(entry: Entry) -> dict[str, Any]:
    return {
        "primary": bytes_document(entry.primary, CONSOLE_SHOWN_VALUE_BYTES),
        "secondary": bytes_document(entry.secondary, CONSOLE_SHOWN_VALUE_BYTES) if entry.secondary else None,
        "value": bytes_document(entry.value, CONSOLE_SHOWN_VALUE_BYTES),
        "version": entry.version,
    }
