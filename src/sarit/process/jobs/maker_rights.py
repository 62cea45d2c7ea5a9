"""The rights of the makers of continuous queries: read from the rules of access, as controllers read them.

A query acts for the user who made it.  A user of the users' file has the roles that the file gives now, and no rights
once the user is not there.  Of a user of an OpenID Connect provider the roles are those that the token had when the
query was made or changed, since no provider is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.limits import RULES_INTERVAL_SECONDS
from sarit.controller.rules import RuleTable
from sarit.core.errors import NotFound
from sarit.security.permissions import Permission, Rules, owner_resource

if TYPE_CHECKING:
    from sarit.controller.access import Access
    from sarit.controller.ports import Tables
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.search.continuous_rows import Maker


class MakerRights:
    """The rules of access of an installation, for what acts for users."""

    def __init__(self, access: Access | None, tables: Tables, env: Env) -> None:
        """`access`: None: this installation has no users, so everybody may do everything."""
        self._access = access
        self._table = RuleTable(tables, env, self._use)
        self._clock = env.clock
        self._rules = Rules()
        self._read_at: float | None = None

    def __repr__(self) -> str:
        return f"<MakerRights by {self._rules!r}>"

    def _use(self, rules: Rules) -> None:
        self._rules = rules

    async def refresh(self) -> None:
        """Read the rules again if they have changed, as often as a controller does.  Raises Unavailable."""
        now = self._clock.monotonic()
        if self._access is None or (self._read_at is not None and now - self._read_at < RULES_INTERVAL_SECONDS):
            return
        try:
            await self._table.refresh()
        except NotFound:
            await self._table.start()
        self._read_at = now

    def problem(self, maker: Maker, source: StreamName, output: StreamName) -> str:
        """Return why a maker may not have matches of a stream in an output; empty: it may."""
        if self._access is None:
            return ""
        if not maker.name:
            return "it was made when this installation had no users: change it, as a user who may have its matches"
        caller = self._access.user_now(maker.name, maker.roles)
        if caller is None:
            return f"{maker.name}, who made it, is no user of this server: change it as another user, or delete it"
        for stream, needed in ((source, Permission.READ), (output, Permission.READ_UPDATE)):
            resource = owner_resource(stream.scope, stream.stream)
            if self._rules.of(caller, resource) < needed:
                return (
                    f"{maker.name}, who made it, may not {'read' if needed is Permission.READ else 'change'} {stream}: "
                    f"`sarit acl grant user:{maker.name} {resource} {needed.name}`"
                )
        return ""
