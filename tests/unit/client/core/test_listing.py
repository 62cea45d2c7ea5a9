"""Lists of the controller come a page at a time: the next page is requested when the one before is used up."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client.aio import Client
from sarit.client.core.retry import RetryPolicy
from sarit.client.session.session import Session
from sarit.core.errors import NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.rpc.generated import controller_pb2 as pb

PAGE = 10


class Controller:
    """1,000,000 streams, named by number."""

    address = "nowhere"

    def __init__(self) -> None:
        self.asked = 0
        self.lose = 0

    async def streams(self, scope: str, tag: str | None, after: pb.ContinuationToken):
        if scope != "s":
            raise NotFound(f"scope {scope} does not exist")
        self.asked += 1
        if self.lose:
            self.lose -= 1
            raise Unavailable("the reply was lost")
        first = int(after.token or 0)
        found = [StreamName("s", f"{number:07}") for number in range(first, min(first + PAGE, 1_000_000))]
        return found, pb.ContinuationToken(token=str(first + PAGE))

    async def close(self) -> None:
        pass


def on_client(test):
    def run() -> None:
        async def go() -> None:
            controller = Controller()
            async with Client(Session(real_env(), controller, RetryPolicy(10.0))) as client:
                await test(client, controller)

        asyncio.run(go())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_client
async def test_next_page_is_requested_when_it_is_needed(client, controller) -> None:
    """A list of everything was returned, however many streams there were."""
    found = client.list_streams("s")
    assert controller.asked == 0
    assert [(await anext(found)).stream for _ in range(PAGE)] == [f"{number:07}" for number in range(PAGE)]
    assert controller.asked == 1
    assert (await anext(found)).stream == f"{PAGE:07}"
    assert controller.asked == 2
    await found.aclose()


@on_client
async def test_page_whose_reply_was_lost_is_requested_again(client, controller) -> None:
    found = client.list_streams("s")
    await anext(found)
    controller.lose = 3
    rest = [(await anext(found)).stream for _ in range(2 * PAGE)]
    assert rest == [f"{number:07}" for number in range(1, 1 + 2 * PAGE)]
    await found.aclose()


@on_client
async def test_missing_scope_raises_with_the_first_item(client, controller) -> None:
    with pytest.raises(NotFound):
        await anext(client.list_streams("nope"))
    assert not controller.asked
