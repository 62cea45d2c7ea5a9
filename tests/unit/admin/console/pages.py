"""What a page of the console does, on a node that all tests of a module share."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import httpx
from starlette.applications import Starlette

from tests.console.serving import serving
from tests.limits import HANG_SECONDS

API = "/console/api"


class Page:
    """What a page of the console does: calls with the session's token."""

    def __init__(self, made) -> None:
        self.node, self.client, self.console = made.node, made.client, made.console
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(Starlette(routes=made.console.routes())), base_url="http://127.0.0.1:9091"
        )

    async def get(self, path: str, status: int = 200, **params):
        reply = await self.http.get(API + path, params=params)
        assert reply.status_code == status, reply.text
        return reply.json()

    async def send(self, method: str, path: str, body, status: int = 200):
        headers = {"x-sarit-token": self.console.token, "content-type": "application/json"}
        reply = await self.http.request(method, API + path, content=json.dumps(body), headers=headers)
        assert reply.status_code == status, reply.text
        return reply.json()


def serve_page(directory, schemas=None):
    """The body of a fixture: it yields what runs a coroutine with the page of a new node.

    `schemas`: a schema registry for it."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start():
            page = Page(await stack.enter_async_context(serving(directory, schemas=schemas)))
            await page.client.create_scope("s")
            return page

        page = runner.run(start())

        def run(test):
            async def bounded():
                async with asyncio.timeout(HANG_SECONDS):
                    await test(page)

            runner.run(bounded())

        yield run
        runner.run(stack.aclose())
