"""A node in a thread of this process that scales, and makes watermarks, within seconds."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sarit.client.blocking.loop_thread import LoopThread
from sarit.controller.times import Times, WatermarkTimes
from sarit.core.metering import ScalingTimes
from sarit.env.real import real_env
from sarit.process.ownership.claims import claim_directory
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from tests.limits import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def fast_node(
    directory: Path, times_faster: float, catalogs: Path | None = None, *, jobs: bool = False
) -> Iterator[str]:
    """The address of its controller.  `catalogs`: a file of Iceberg catalogs, for jobs that commit to them; `jobs`: run
    those of other kinds."""
    thread = LoopThread("node")
    times = Times(scaling=ScalingTimes().shrunk(times_faster), watermarks=WatermarkTimes(interval=10 / times_faster))
    config = NodeConfig(
        str(directory), controller_port=0, store_port=0, times=times, jobs=jobs or catalogs is not None,
        catalogs=None if catalogs is None else str(catalogs),
    ).validated()  # fmt: skip

    async def start():
        env = real_env()
        claim = claim_directory(config, env)  # for links, the node has an id
        node = await open_node(config, env, claim)
        await node.start(claim)
        return node

    node = thread.run(start())
    try:
        yield f"127.0.0.1:{node.controller_port}"
    finally:
        thread.run(asyncio.wait_for(node.stop(), HANG_SECONDS))
        thread.close()
