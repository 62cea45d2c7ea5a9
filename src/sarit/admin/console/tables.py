"""Key-value tables: lists, pages of entries, changes of one entry."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sarit.admin.console.calls import body_of, call, check_confirmed, page_of, whole_number
from sarit.admin.console.documents import bytes_document, number_of, payload_of
from sarit.admin.console.limits import CONSOLE_MAX_VALUE_BYTES, CONSOLE_SHOWN_VALUE_BYTES, CONSOLE_TABLE_ROWS
from sarit.admin.console.names import TABLES
from sarit.client.tables.layout import IN_BASE64, following
from sarit.core.errors import Invalid, NotFound
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from sarit.admin.console.names import NameLists
    from sarit.admin.console.permissions import Rights
    from sarit.client.aio import Client
    from sarit.client.tables.layout import Entry, Key, TableConfig


class TableCalls:
    """Calls on key-value tables."""

    def __init__(self, client: Client, lists: NameLists, rights: Rights) -> None:
        self._client = client
        self._rights = rights
        self._lists = lists

    def __repr__(self) -> str:
        return "<TableCalls>"

    def routes(self) -> list[BaseRoute]:
        """Below /console/api."""
        one = "/tables/{scope}/{table}"
        return [
            call("/tables", self.tables),
            call(one, self.entries),
            call(one, self.delete, "DELETE"),
            call(f"{one}/entry", self.entry),
            call(f"{one}/entry", self.put, "POST"),
            call(f"{one}/entry", self.remove, "DELETE"),
        ]

    async def tables(self, request: Request) -> Any:
        """Return a page of tables."""
        return await page_of(request, self._lists, TABLES, self._row)

    async def _row(self, name: str) -> dict[str, Any]:
        try:
            return {"table": name} | _config_document(await self._client.table(name).config())
        except NotFound:
            return {"table": name, "gone": True}

    async def entries(self, request: Request) -> Any:
        """Return a page of entries in the order of their keys.

        Parameters: `prefix` of the primary keys; or `key`, one of them, both as text or as "base64:" and base64;
        `after`: what `next` was before."""
        name = _name(request)
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
        may_change = self._rights.changes_table(StreamName.parse(name))
        return {
            "table": name, "rows": list(map(_entry_document, rows)), "next": last, "may_change": may_change,
        } | _config_document(config)  # fmt: skip

    async def entry(self, request: Request) -> Any:
        """Return one entry, its value as far as CONSOLE_MAX_VALUE_BYTES.  Parameters: `primary`, `secondary`."""
        given = request.query_params
        found = await self._client.table(_name(request)).get(_key_of(given))
        if found is None:
            raise NotFound("the table has no entry of this key any more")
        return _entry_document(found, CONSOLE_MAX_VALUE_BYTES)

    async def put(self, request: Request) -> Any:
        """Body: "primary" and "secondary" in base64, "text" or "base64", and "version": of the entry that is changed.

        Without "version" the key must be absent.  A key that has another version is not changed."""
        body = await body_of(request)
        table, key, value = self._client.table(_name(request)), _key_of(body), payload_of(body)
        if len(value) > CONSOLE_MAX_VALUE_BYTES:
            raise Invalid(f"a value of {len(value)} bytes: the console writes at most {CONSOLE_MAX_VALUE_BYTES}")
        if body.get("version") is None:
            return {"version": await table.insert(key, value)}
        return {"version": await table.replace(key, value, number_of(body, "version"))}

    async def remove(self, request: Request) -> Any:
        """Body: "primary" and "secondary" in base64, and "version", which the key must have."""
        body = await body_of(request)
        await self._client.table(_name(request)).remove(_key_of(body), number_of(body, "version"))
        return {"removed": True}

    async def delete(self, request: Request) -> Any:
        """Delete the table.  The body names it again: {"confirm": "scope/table"}."""
        name = _name(request)
        check_confirmed(await body_of(request), name)
        await self._client.tables.delete(name)
        self._lists.changed()
        return {"deleted": True}


def _name(request: Request) -> str:
    return f"{request.path_params['scope']}/{request.path_params['table']}"


def _key_of(given: Mapping[str, Any]) -> Key:
    """Return the key that base64 gives.  Raises Invalid."""
    try:
        primary, secondary = (base64.b64decode(str(given.get(name) or ""), validate=True)
                              for name in ("primary", "secondary"))  # fmt: skip
    except ValueError:
        raise Invalid("primary, secondary: give the key in base64") from None
    return (primary, secondary) if secondary else primary


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
    """Return a parameter with a key, or the beginning of one.  Raises Invalid."""
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
    """Return the last key of the page before, empty for the first page.  Raises Invalid."""
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


def _entry_document(entry: Entry, most: int = CONSOLE_SHOWN_VALUE_BYTES) -> dict[str, Any]:
    return {
        "primary": bytes_document(entry.primary, CONSOLE_SHOWN_VALUE_BYTES),
        "secondary": bytes_document(entry.secondary, CONSOLE_SHOWN_VALUE_BYTES) if entry.secondary else None,
        "value": bytes_document(entry.value, most),
        "version": entry.version,
    }
