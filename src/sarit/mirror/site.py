"""This installation as the source and the target of links: its two ports, its links, and the calls of its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sarit.controller.holds import Holds
from sarit.core.errors import Invalid
from sarit.core.names import is_internal_name
from sarit.mirror.attached import LocalAttachedSource, LocalAttachedTarget
from sarit.mirror.hold_bounds import HoldBound
from sarit.mirror.link_table import LinkTable
from sarit.mirror.source import LocalSource
from sarit.mirror.target import LocalTarget

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller
    from sarit.controller.ports import Tables
    from sarit.core.links import Link
    from sarit.env.ports import Env
    from sarit.mirror.peer import Peer
    from sarit.mirror.ports import MirrorSource, MirrorTarget


class MirrorSite:
    """The parts of links on one controller: `source`, `target`, `links`.

    `tables`: where links are stored.  `installation`: the id of the node or of the cluster."""

    def __init__(self, controller: Controller, tables: Tables, env: Env, installation: str) -> None:
        if not is_internal_name(installation):
            raise Invalid("this installation has no id, and without one it has no links")
        self.installation = installation
        self.links = LinkTable(tables, installation, env.clock.wall_ms)
        catalog, segments = controller.catalog, controller.segments
        source = LocalSource(
            catalog, controller.streams, segments, env, installation, controller.growth,
            attached=LocalAttachedSource(catalog, installation, segments),
        )  # fmt: skip
        self.source = cast("MirrorSource", source)
        self._drop_holds = source.drop_holds
        self._holds = Holds(catalog, segments, env.clock)
        self._quotas = controller.quotas
        attached = LocalAttachedTarget(
            catalog, controller.scopes, controller.tables, controller.groups, segments, installation, self.links
        )
        target = LocalTarget(
            catalog, controller.streams, controller.scopes, segments, env, installation, attached, self.links
        )
        self.target = cast("MirrorTarget", target)
        # Carries out what was decided for a mirror.
        self.finish_round = target.finish_round
        self._env = env

    def __repr__(self) -> str:
        return f"<MirrorSite {self.installation}>"

    async def drop_holds(self, link_id: bytes) -> None:
        """Have streams of this installation keep nothing for a link, and no writers wait for it."""
        await self._drop_holds(link_id)
        await self._quotas.hold_back(link_id, ())

    def hold_bound(self, link: Link) -> HoldBound:
        """Return what keeps the bytes in bounds that this installation holds for a link."""
        return HoldBound(link, self._holds, self._quotas, self._env.clock)

    def families(self) -> tuple[object, ...]:
        """Return what serves the calls of MirrorService, method by method."""
        from sarit.mirror.attached_calls import AttachedCalls
        from sarit.mirror.calls import MirrorCalls

        return MirrorCalls(self, self.links.passive, self.installation), AttachedCalls(self, self.installation)

    def peer(self, link: Link) -> Peer:
        """Return the peer of a link; the caller closes it."""
        from sarit.mirror.peer import Peer

        return Peer(link.settings, self._env, self.installation, link.peer_installation)
