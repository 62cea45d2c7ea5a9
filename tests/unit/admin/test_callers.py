"""Clients of callers over HTTP: how many one user may have, and that the spelling of a header makes no second one."""

import asyncio
import base64
from contextlib import AsyncExitStack

import pytest

from sarit.admin.callers import Callers, Gate
from sarit.admin.console.limits import CONSOLE_MAX_LIVE_OF_USER
from sarit.admin.console.sse import Places
from sarit.admin.limits import MAX_HTTP_CALLERS_OF_USER
from sarit.core.errors import Unavailable
from sarit.security.permissions import Caller


class Client:
    def __init__(self, credentials) -> None:
        self.credentials = credentials
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Logins:
    """Log-ins that believe every user, and every token of alice."""

    async def caller(self, authorization, peer):
        kind, _, value = authorization.partition(" ")
        return Caller("alice" if kind == "Bearer" else base64.b64decode(value).decode().partition(":")[0])


def _callers(made, most=64) -> Callers:
    def connect(credentials):
        made.append(Client(credentials))
        return made[-1]

    return Callers(Gate(Logins()), Client(None), connect, most)


def _basic(user: str) -> str:
    return base64.b64encode(f"{user}:secret".encode()).decode()


def test_one_log_in_has_one_client_however_its_header_is_written():
    async def main() -> None:
        made = []
        callers = _callers(made)
        for header in (f"Basic {_basic('bob')}", f"basic   {_basic('bob')}  ", f"BASIC {_basic('bob')}"):
            async with callers.asking(header, "peer"):
                pass
        assert len(made) == 1
        await callers.close()

    asyncio.run(main())


def test_one_user_takes_a_bounded_number_of_clients_and_none_of_others():
    async def main() -> None:
        made = []
        callers = _callers(made, most=MAX_HTTP_CALLERS_OF_USER + 1)
        async with AsyncExitStack() as under_way:
            for number in range(MAX_HTTP_CALLERS_OF_USER):
                await under_way.enter_async_context(callers.asking(f"Bearer {number}", "peer"))
            with pytest.raises(Unavailable, match=f"with {MAX_HTTP_CALLERS_OF_USER} log-ins of alice are under way"):
                await under_way.enter_async_context(callers.asking("Bearer more", "peer"))
            async with callers.asking(f"Basic {_basic('bob')}", "peer"):
                pass
        # Without a request under way her oldest client makes room, and that of nobody else.
        async with callers.asking("Bearer more", "peer"):
            await asyncio.sleep(0)
            assert [client.closed for client in made] == [True] + [False] * (len(made) - 1)
        await callers.close()

    asyncio.run(main())


def test_one_user_takes_a_bounded_number_of_live_views():
    places = Places(most=CONSOLE_MAX_LIVE_OF_USER + 1)
    for _ in range(CONSOLE_MAX_LIVE_OF_USER):
        places.check("alice")
        places.take("alice")
    with pytest.raises(Unavailable, match="live views of alice"):
        places.check("alice")
    places.check("bob")
    places.take("bob")
    with pytest.raises(Unavailable, match=f"^{CONSOLE_MAX_LIVE_OF_USER + 1} live views are open"):
        places.check("carol")
    places.leave("alice")
    places.check("alice")
