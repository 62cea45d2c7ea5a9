"""A node with a console in one process, on free ports; scaling is as fast as a test wants it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sarit.admin.callers import Callers, Gate
from sarit.admin.console import Console
from sarit.client import aio
from sarit.controller.times import Times
from sarit.env.real import real_env
from sarit.process.observation.console_view import StandaloneView
from sarit.process.observation.health import Health
from sarit.process.ownership.claims import claim_directory
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node

if TYPE_CHECKING:
    from pathlib import Path

    from sarit.admin.console.query_view import Queries
    from sarit.admin.console.schema_view import SchemasView


class Serving:
    """`client` is connected to `node`; `console` is its console, at `url` if it listens."""

    def __init__(self, node, client, console) -> None:
        self.node = node
        self.client = client
        self.console = console
        self.url = ""


@asynccontextmanager
async def serving(
    directory: Path, times: Times | None = None, *, writes: bool = True, schemas: SchemasView | None = None,
    queries: Queries | None = None, jobs: bool = False,
):  # fmt: skip
    """A node and its console, not listening.  `schemas`: a schema registry to show.  `queries`: runs those of it.
    `jobs`: with background jobs."""
    env = real_env()
    config = NodeConfig(str(directory), controller_port=0, store_port=0, times=times or Times(), jobs=jobs).validated()
    claim = claim_directory(config, env)  # without an id a node has no links
    node = await open_node(config, env, claim)
    await node.start()
    client = await aio.connect(f"127.0.0.1:{node.controller_port}")
    health = Health("the node", env.clock)
    health.store = node.store
    health.ready()
    callers = Callers(Gate(), client)
    view = StandaloneView(node, health)
    console = Console(callers, view, env, frozenset(), writes=writes, schemas=schemas, queries=queries)
    try:
        yield Serving(node, client, console)
    finally:
        await callers.close()
        await client.close()
        await node.stop()
        claim.lock.close()


@asynccontextmanager
async def listening(made: Serving, port: int = 0):
    """The console on a port of loopback."""
    import uvicorn
    from starlette.applications import Starlette

    config = uvicorn.Config(
        Starlette(routes=made.console.routes()), host="127.0.0.1", port=port, log_level="warning", lifespan="off"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    made.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    running = asyncio.ensure_future(server.main_loop())
    try:
        yield made
    finally:
        server.should_exit = server.force_exit = True
        await running
        await server.shutdown()
