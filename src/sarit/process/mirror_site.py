"""The links of the installation of a process, made when the first call or job of a link comes.

A process without links pays for none of it: `sarit.mirror` is not imported before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.controller.assembly import Controller
    from sarit.controller.ports import Tables
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.mirror.link_service import LinkService
    from sarit.mirror.site import MirrorSite


class LateSite:
    """Makes the site of a controller once, when it is first asked for.

    `installation`: as of `MirrorSite`.  `runs_jobs`: clients may create jobs, so there can be links."""

    def __init__(
        self, controller: Controller, tables: Tables, env: Env, installation: str, *, runs_jobs: bool = True
    ) -> None:  # fmt: skip
        self._runs_jobs = runs_jobs
        self._controller = controller
        self._tables = tables
        self._env = env
        self._installation = installation
        self._made: MirrorSite | None = None
        self._service: LinkService | None = None
        self._families: tuple[object, ...] = ()

    def __repr__(self) -> str:
        return f"<LateSite {self._made!r}>"

    def __call__(self) -> MirrorSite:
        """Return the site.  Raises Invalid: the installation has no id."""
        if self._made is None:
            from sarit.mirror.site import MirrorSite

            self._made = MirrorSite(self._controller, self._tables, self._env, self._installation)
        return self._made

    async def finish_round(self, name: StreamName) -> None:
        """Carry out the round that is decided for a mirror.  Raises Unavailable."""
        await self().finish_round(name)

    def links(self) -> LinkService:
        """Return what administrators do with links.  Raises Invalid: the installation has no id."""
        if self._service is None:
            from sarit.mirror.link_service import LinkService, contact_peer, release_at_peer

            site, env = self(), self._env
            self._service = LinkService(
                site, self._controller.streams, env,
                lambda settings: contact_peer(settings, env, site.installation),
                site.drop_holds,
                lambda link: release_at_peer(link, env, site.installation),
                runs_jobs=self._runs_jobs,
            )  # fmt: skip
        return self._service

    async def family(self, call: str) -> object:
        """Return what serves a call of MirrorService.  Raises Invalid: the installation has no id."""
        if not self._families:
            self._families = self().families()
        (found,) = (family for family in self._families if hasattr(family, call))
        return found
