"""The table of links of an installation: a row for each link, and one for each scope that a link writes into.

    l/<link>                    the link (`link_codec`)
    s/<link id, hex>/<scope>    the link has mirrors in the scope, or had some; no value
    n                           written again when a link is added or gets other settings

The row `n` makes two links that exclude each other conflict, also if two controllers add them at the same moment.  The
first link creates the table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sarit.controller.catalog import scan_whole
from sarit.controller.jobs import JobKey
from sarit.controller.keys import LINKS_TABLE, after_prefix, link_key
from sarit.controller.ports import TableUpdate
from sarit.controller.streams import MAX_ATTEMPTS
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.limits import NOT_EXISTS
from sarit.core.links import Link, LinkDirection, LinkRole, LinkSettings, LinkState
from sarit.core.names import SYSTEM_SCOPE, StreamName
from sarit.mirror.limits import (
    LINK_ID_BYTES,
    MAX_LINK_NAME_CHARACTERS,
    MAX_LINKS,
    MAX_PASSIVE_LINKS,
    MAX_PASSIVE_LINKS_OF_SCOPE,
)
from sarit.mirror.link_checks import check_beside, check_change, check_name, check_settings
from sarit.mirror.link_codec import decode_link, encode_link
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.ports import Tables
    from sarit.mirror.values import LinkIdentity

KIND: Final = "link"

_LINK: Final = b"l/"
_SCOPE: Final = b"s/"
_CHANGES: Final = b"n"
_PASSIVE_DIGITS: Final = 8


def stream_of(name: str) -> StreamName:
    """Return the internal stream that the job of a link belongs to."""
    return StreamName(SYSTEM_SCOPE, f"_link-{name}")


def job_of(name: str) -> JobKey:
    """Return the job of a link."""
    return JobKey(KIND, stream_of(name), name)


class LinkTable:
    """Reads and changes links.  `installation`: the id of this installation.  `wall_ms`: its clock."""

    def __init__(self, tables: Tables, installation: str = "", wall_ms: Callable[[], int] = lambda: 0) -> None:
        self._tables = tables
        self._installation = installation
        self._wall_ms = wall_ms

    def __repr__(self) -> str:
        return "<LinkTable>"

    async def list(self) -> list[Link]:
        """Return all links, by name.  Raises Unavailable, Corrupt."""
        with suppress(NotFound):
            rows = await scan_whole(self._tables, LINKS_TABLE, _LINK, after_prefix(_LINK))
            return [decode_link(key[len(_LINK) :].decode(), row.value, row.version) for key, row in rows]
        return []

    async def get(self, name: str) -> Link | None:
        """Return a link; None: there is none of this name.  Raises Unavailable, Corrupt."""
        with suppress(NotFound):
            (row,) = await self._tables.get(LINKS_TABLE, [link_key(name)])
            return None if row is None else decode_link(name, row.value, row.version)
        return None

    async def require(self, name: str) -> Link:
        """Return a link.  Raises NotFound, Unavailable, Corrupt."""
        check_name(name)
        link = await self.get(name)
        if link is None:
            raise NotFound(f"there is no link {name}: `sarit link list` lists them")
        return link

    async def create(self, link: Link) -> Link:
        """Store a new link.  Raises Invalid, Exists (its name is in use, or another link may write the same stream),
        Unavailable."""
        check_name(link.name)
        check_settings(link.settings)
        with suppress(Exists):
            await self._tables.create(LINKS_TABLE)
        return await self._store(link, NOT_EXISTS)

    async def change(self, link: Link, settings: LinkSettings) -> Link:
        """Give a link other settings, if it is unchanged since it was read.  Raises Conflict, Invalid, Exists,
        Unavailable."""
        if link.role is LinkRole.PASSIVE:
            raise Invalid(f"link {link.name} has its settings where it runs: change it there")
        check_change(link.settings, settings)
        return await self._store(replace(link, settings=settings), link.version)

    async def update(self, link: Link) -> Link:
        """Store a link's state or its peer's id, if it is unchanged since it was read.  Raises Conflict, Unavailable.

        Returns the link with its new version."""
        try:
            versions = await self._tables.update(
                LINKS_TABLE, [TableUpdate(link_key(link.name), encode_link(link), link.version)]
            )
        except NotFound:
            raise Conflict(f"link {link.name} was deleted in between") from None
        return replace(link, version=versions[0])

    async def delete(self, link: Link) -> None:
        """Remove a link, whatever its version, and its scopes.  Raises Unavailable."""
        rows = [_scope_key(link.link_id, scope) for scope in await self.scopes(link.link_id)]
        found = await self.get(link.name)
        with suppress(Conflict, NotFound):  # another call has removed it
            if rows:
                await self._tables.update(LINKS_TABLE, [TableUpdate(row, None, NO_VERSION) for row in rows])
            if found is not None and found.link_id == link.link_id:
                await self._tables.update(LINKS_TABLE, [TableUpdate(link_key(link.name), None, NO_VERSION)])

    async def passive(self, identity: LinkIdentity, scope: str) -> None:
        """Record that a link, of this or of another installation, writes into a scope of this one.

        A link that runs elsewhere gets a row of its own here, under its name, or with a part of its id if the name is
        in use.  Raises Invalid, Unavailable."""
        check_name(identity.name)
        if len(identity.link_id) != LINK_ID_BYTES:
            raise Invalid(f"the id of a link has {LINK_ID_BYTES} bytes")
        with suppress(Exists):
            await self._tables.create(LINKS_TABLE)
        row = _scope_key(identity.link_id, scope)
        (known,) = await self._tables.get(LINKS_TABLE, [row])
        if known is not None:
            return
        links = await self.list()
        ours = identity.installation == self._installation
        if not any(link.link_id == identity.link_id and (link.role is LinkRole.ACTIVE) is ours for link in links):
            if ours:
                raise Invalid(f"no link {identity.name} of this installation has that id")
            await self._add_passive(identity, scope, links)
        await self._tables.update(LINKS_TABLE, [TableUpdate(row, b"", NO_VERSION)])

    async def is_promoted(self, link_id: bytes) -> bool:
        """Return whether the mirrors of a link were promoted here.  Raises Unavailable, Corrupt."""
        return any(link.link_id == link_id and link.state is LinkState.PROMOTED for link in await self.list())

    async def scopes(self, link_id: bytes) -> Sequence[str]:
        """Return the scopes of this installation in which a link has mirrors, or had some.  Raises Unavailable."""
        start = _scope_key(link_id, "")
        with suppress(NotFound):
            rows = await scan_whole(self._tables, LINKS_TABLE, start, after_prefix(start))
            return [key[len(start) :].decode() for key, _ in rows]
        return []

    async def _add_passive(self, identity: LinkIdentity, scope: str, links: Sequence[Link]) -> None:
        passive = {link.link_id.hex() for link in links if link.role is LinkRole.PASSIVE}
        if len(passive) >= MAX_PASSIVE_LINKS or len(links) >= MAX_LINKS:
            raise Invalid(f"{len(links)} links end here, which is the limit: an administrator here can delete some")
        rows = await scan_whole(self._tables, LINKS_TABLE, _SCOPE, after_prefix(_SCOPE))
        found = [key[len(_SCOPE) :].decode().split("/") for key, _ in rows]
        if sum(name == scope and link_id in passive for link_id, name in found) >= MAX_PASSIVE_LINKS_OF_SCOPE:
            raise Invalid(
                f"{MAX_PASSIVE_LINKS_OF_SCOPE} links of others write into scope {scope}, which is the limit: an "
                "administrator here can delete some"
            )
        name = identity.name
        if any(link.name == name for link in links):
            suffix = f"-{identity.link_id.hex()[:_PASSIVE_DIGITS]}"
            name = name[: MAX_LINK_NAME_CHARACTERS - len(suffix)] + suffix
        settings, now_ms = LinkSettings(LinkDirection.PUSH, "", include=()), self._wall_ms()
        link = Link(name, identity.link_id, now_ms, LinkRole.PASSIVE, LinkState.ACTIVE, settings, identity.installation)
        update = TableUpdate(link_key(name), encode_link(link), NOT_EXISTS)
        try:
            await self._tables.update(LINKS_TABLE, [update])
        except Conflict:
            raise Unavailable(f"link {name} is added by another call; try again") from None

    async def _store(self, link: Link, version: int) -> Link:
        for _ in range(MAX_ATTEMPTS):
            (changes,) = await self._tables.get(LINKS_TABLE, [_CHANGES])
            others = await self.list()
            known = next((other for other in others if other.name == link.name), None)
            if version == NOT_EXISTS and known is not None:
                raise Exists(f"there is a link {link.name}: give another name")
            if version != NOT_EXISTS and (known is None or known.version != version):
                raise Conflict(f"link {link.name} was changed in between: read it again")
            if known is None and len(others) >= MAX_LINKS:
                raise _too_many()
            check_beside(link, others, self._installation)
            updates = [
                TableUpdate(link_key(link.name), encode_link(link), version),
                TableUpdate(_CHANGES, b"", NOT_EXISTS if changes is None else changes.version),
            ]
            with suppress(Conflict):  # another link was added or changed: compare with it
                versions = await self._tables.update(LINKS_TABLE, updates)
                return replace(link, version=versions[0])
        raise Unavailable("the links are changed by too many others at once; try again")


def _too_many() -> Invalid:
    return Invalid(f"there are {MAX_LINKS} links, which is the limit: delete one, or give one more globs")


def _scope_key(link_id: bytes, scope: str) -> bytes:
    return _SCOPE + f"{link_id.hex()}/{scope}".encode()
