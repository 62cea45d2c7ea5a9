"""A store of an earlier version, as the simulation makes one."""

from __future__ import annotations

from typing import Any

import pytest

from sarit.store.server.internal_handler import InternalHandler
from sarit.wire import commands as wire
from sarit.wire.errors import ProtocolError
from simulation.earlier_version import forget_newest_commands

SECRET = b"of the installation"


def test_earlier_version_ends_connections_that_ask_for_the_newest_commands() -> None:
    store: Any = object()
    handler = InternalHandler(store, SECRET)
    newest = wire.CreateFreshSegments(1, ("a/b/0.#epoch.0",))
    present = handler.introduce(SECRET)
    assert present is not None
    assert present.handles(newest)
    forget_newest_commands(handler)
    earlier = handler.introduce(SECRET)
    assert earlier is not None
    with pytest.raises(ProtocolError, match="unknown command 1000021"):
        earlier.handles(newest)
    assert earlier.handles(wire.AwaitScaleRequests(1))
    assert handler.introduce(b"another") is None
