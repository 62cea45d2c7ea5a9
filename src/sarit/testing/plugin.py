"""Fixtures of pytest, which finds this module by itself where Sarit is installed.

Loading it imports pytest alone: a project that does not use the fixtures pays nothing.  The node is another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit import Client
    from sarit.testing.node import NodeProcess


@pytest.fixture(scope="session")
def sarit_node_options() -> list[str]:
    """Return options of `sarit standalone` for the node of the session; define such a fixture to choose others."""
    return []


@pytest.fixture(scope="session")
def sarit_node(sarit_node_options: list[str]) -> Iterator[NodeProcess]:
    """Yield a node in a process of its own, on a temporary directory and free ports, for all tests of the session."""
    from sarit.testing.node import NodeProcess

    with NodeProcess(sarit_node_options) as node:
        yield node


@pytest.fixture
def sarit_client(sarit_node: NodeProcess) -> Iterator[Client]:
    """Yield a client of the node, which is started again if an earlier test has ended it."""
    import sarit

    sarit_node.start()
    with sarit.connect(sarit_node.controller) as client:
        yield client


@pytest.fixture
def sarit_scope(sarit_node: NodeProcess, sarit_client: Client) -> Iterator[str]:
    """Yield the name of a new scope, which is deleted after the test with all that is in it."""
    from sarit.env.real import real_env
    from sarit.testing.limits import SCOPE_NAME_BYTES

    name = f"test-{real_env().random.bytes(SCOPE_NAME_BYTES).hex()}"
    sarit_client.create_scope(name)
    yield name
    sarit_node.start()
    sarit_client.delete_scope(name, recursive=True)
