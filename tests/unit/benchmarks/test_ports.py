"""Ports of servers: nobody else gets them while a server is away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.peers import ports
from benchmarks.peers.ports import BLOCK_PORTS, BLOCKS, FIRST_PORT, Block, free_ports


def test_ports_for_servers_are_not_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert first >= FIRST_PORT + BLOCKS * BLOCK_PORTS
    found = free_ports(5)
    assert found == list(range(found[0], found[0] + 5))
    assert found[0] >= FIRST_PORT
    assert found[-1] < first


def test_ports_come_back_only_after_the_whole_block(tmp_path) -> None:
    block = Block(tmp_path)
    given = [port for _ in range(BLOCK_PORTS // 4) for port in block.take(4)]
    # Servers of other programs may have some: these are passed by.
    assert len(set(given)) > BLOCK_PORTS // 2
    assert set(given) <= set(range(block.first, block.first + BLOCK_PORTS))
    with socket.create_server(("127.0.0.1", given[1])):
        again = [port for _ in range(BLOCK_PORTS // 4) for port in block.take(4)]
    assert given[1] not in again


def test_a_block_is_of_one_process_at_a_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ports, "BLOCKS", 2)
    first, second = Block(tmp_path), Block(tmp_path)
    assert first.first != second.first
    with pytest.raises(RuntimeError, match="all 2 blocks of ports are reserved"):
        Block(tmp_path)
    held = first.first
    del first
    assert Block(tmp_path).first == held
