"""Nodes behind forwarders that map other ports to theirs, as containers and NAT do: clients arrive by `--advertise`."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests import secured
from tests.chaos.proxy import Proxy
from tests.nodes import RunningNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NODE_HOST, EDGE_HOST = "127.0.0.2", "127.0.0.1"
STREAM = "s/t"


@contextmanager
def mapped(ports: Mapping[int, int]) -> Iterator[list[Proxy]]:
    """Forward from ports of the edge to ports of the node."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work):
        asyncio.run_coroutine_threadsafe(work, loop).result()

    proxies = [Proxy(EDGE_HOST, edge, NODE_HOST, own) for edge, own in ports.items()]
    try:
        for proxy in proxies:
            call(proxy.start())
        yield proxies
    finally:
        for proxy in proxies:
            call(proxy.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.skipif(secured.ON, reason="the address has no name")
@pytest.mark.parametrize("options", [(), ("--processes", "2", "--containers", "4"), ("--one-port",)])
def test_clients_arrive_by_mapped_ports(options, tmp_path):
    stores = 0 if "--one-port" in options else 2 if options else 1
    ports = free_ports(2 * (1 + stores))
    own, edge = ports[: 1 + stores], ports[1 + stores :]
    advertised = ":".join([EDGE_HOST, *map(str, edge[: 1 + bool(stores)])])
    listening = ["--host", NODE_HOST, "--controller-port", str(own[0])]
    listening += ["--store-port", str(own[1])] if stores else []
    node = RunningNode(tmp_path / "data", *listening, *options, "--advertise", advertised)
    with mapped(dict(zip(edge, own, strict=True))) as proxies, node:
        with sarit.connect(f"{EDGE_HOST}:{edge[0]}") as client:
            client.create_scope("s")
            client.create_stream(STREAM, segments=8)
            with client.writer(STREAM) as writer:
                for number in range(100):
                    writer.write(str(number), key=str(number))
            assert len(list(client.reader(STREAM, end="tail"))) == 100
        assert all(proxy.accepted for proxy in proxies), "every port is reached as it is mapped"
