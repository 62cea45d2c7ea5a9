"""Nodes at the edge and in the middle, and the networks between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.mirror.nodes import Installation, LinkProxy
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path


async def node(stack: AsyncExitStack, path: Path, *options: str) -> Installation:
    """Start a node at addresses of its own, and end it with the test."""
    started = RunningNode(path, *options)
    await asyncio.to_thread(started.start)
    stack.push_async_callback(asyncio.to_thread, started.kill)
    made = Installation(started)
    await made.open()
    stack.push_async_callback(made.close)
    return made


async def before(stack: AsyncExitStack, target: Installation) -> LinkProxy:
    """Return a proxy before a node."""
    proxy = LinkProxy(target.node.controller)
    await proxy.start()
    stack.push_async_callback(proxy.close)
    return proxy
