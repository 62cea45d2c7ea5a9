"""The other installation of a link: the channel to its controllers, the log-in there, and the handshake.

*Log-in.*  A link has the place of its password, not the password: it is read when a connection is made, and after a
log-in that was refused.  No text, list or log shows it.

*Handshake.*  The first call of each connection asks which installation answers, and which messages it knows: a link to
itself, to another installation than before, or to one of another version is refused by name.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.addresses import parse_addresses
from sarit.client.core.connection import first_request_id
from sarit.client.core.controller import ControllerClient, UnknownCall
from sarit.client.core.login import Tls, UserPassword, default_tls, first_line, refuse_plain
from sarit.core.errors import Invalid, Unauthenticated, Unavailable
from sarit.core.names import is_internal_name
from sarit.mirror.batch_size import BatchSize
from sarit.mirror.compression import compresses
from sarit.mirror.limits import MIRROR_CALL_SECONDS, MIRROR_PROTOCOL
from sarit.mirror.link_checks import check_password
from sarit.mirror.values import Site
from sarit.rpc.generated import mirror_pb2 as pb
from sarit.rpc.mirror_methods import MIRROR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.core.login import Credentials
    from sarit.core.links import LinkSettings
    from sarit.env.ports import Env
    from sarit.rpc.methods import Method

FILE: Final = "file:"
VARIABLE: Final = "env:"


def read_password(place: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the password at a place, `file:PATH` (its first line) or `env:NAME`.  Raises Invalid."""
    check_password(place)
    if place.startswith(FILE):
        return first_line(place.removeprefix(FILE), "the password of the link")
    name = place.removeprefix(VARIABLE)
    password = environ.get(name)
    if password is None:
        raise Invalid(f"the password of the link: this process has no environment variable {name}")
    return password


def _credentials(settings: LinkSettings) -> Credentials | None:
    if not settings.user:
        return None
    return UserPassword(settings.user, read_password(settings.password))


class Peer:
    """The peer of a link, with the rights of the link's user there.

    `installation`: the id of this installation.  `expected`: that of the peer; empty: it is not known yet."""

    def __init__(self, settings: LinkSettings, env: Env, installation: str, expected: str = "") -> None:
        self._settings = settings
        self._env = env
        self._installation = installation
        self._expected = expected
        self._client: ControllerClient | None = None
        self._site: Site | None = None
        self._shaking = asyncio.Lock()
        self._calls = 0  # under way
        self.batch = BatchSize()  # of reads and writes
        self._stale = False  # whether the next call makes a new connection, when none is under way

    def __repr__(self) -> str:
        return f"<Peer {self._settings.peer}, {self._calls} calls>"

    @property
    def compresses(self) -> bool:
        """Whether both sides have zstd, by the last handshake."""
        return self._site is not None and self._site.compresses and compresses()

    async def site(self) -> Site:
        """Ask which installation the peer is, and check that it may be the peer of this link.

        Raises Invalid: it may not; and what `call` raises."""
        return await self._handshake(await self._open())

    async def call(self, method: Method, request: Any, seconds: float = MIRROR_CALL_SECONDS) -> Any:
        """Make a call once, after a handshake on a new connection.  Raises SaritError."""
        client = await self._open()
        async with self._shaking:
            if self._site is None:
                await self._handshake(client)
        return await self._ask(client, method, request, seconds)

    async def carry(self, method: Method, request: Any) -> Any:
        """Make a call with many bytes in its request or its reply; its time chooses the size of the next ones."""
        clock = self._env.clock.monotonic
        began = clock()
        try:
            reply = await self.call(method, request)
        except Unavailable:
            self.batch.failed(clock() - began)
            raise
        self.batch.answered(clock() - began)
        return reply

    async def close(self) -> None:
        """End the connection; a later call makes another one."""
        client, self._client, self._site = self._client, None, None
        if client is not None:
            await client.close()

    async def _open(self) -> ControllerClient:
        if self._stale and not self._calls:
            await self.close()
        if self._client is None:
            settings, random = self._settings, self._env.random
            credentials = _credentials(settings)
            addresses = parse_addresses(settings.peer)
            tls = Tls(settings.ca) if settings.ca else default_tls(settings.peer, {})
            if tls is None:
                refuse_plain(credentials, [host for host, _ in addresses])
            self._client = ControllerClient(
                addresses, MIRROR_CALL_SECONDS, credentials=credentials, tls=None if tls is None else tls.context(),
                first_request_id=first_request_id(random),
            )  # fmt: skip
            self._stale = False
        return self._client

    async def _ask(self, client: ControllerClient, method: Method, request: Any, seconds: float) -> Any:
        self._calls += 1
        try:
            return await client.call(method, request, seconds)
        except (Unauthenticated, Unavailable):
            self._stale = True
            raise
        finally:
            self._calls -= 1

    async def _handshake(self, client: ControllerClient) -> Site:
        try:
            reply = await self._ask(client, MIRROR.mirrorSite, pb.MirrorSiteRequest(), MIRROR_CALL_SECONDS)
        except UnknownCall:
            raise Invalid(
                f"the peer {self._settings.peer} knows no links: install this version of Sarit there"
            ) from None
        found = Site(reply.installation, reply.protocol, reply.wallMs, reply.compresses)
        self._check(found)
        self._site = found
        return found

    def _check(self, found: Site) -> None:
        peer = self._settings.peer
        if found.protocol != MIRROR_PROTOCOL:
            raise Invalid(
                f"the peer {peer} speaks version {found.protocol} of the messages of links, and this installation "
                f"version {MIRROR_PROTOCOL}: install the same version of Sarit on both"
            )
        if not is_internal_name(found.installation):
            raise Invalid(f"the peer {peer} has no id as an installation has")
        if found.installation == self._installation:
            raise Invalid(f"a link to itself: {peer} is this installation; give the address of another one")
        if self._expected not in ("", found.installation):
            raise Invalid(
                f"{peer} is another installation than the link was made to ({found.installation}, not "
                f"{self._expected}): check the address, or delete the link and create it again"
            )
