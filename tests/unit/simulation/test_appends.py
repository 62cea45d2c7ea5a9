"""A writer of the simulation and late requests of its own earlier connections."""

from __future__ import annotations

import asyncio

import pytest

from sarit.core.errors import Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.wire import commands as wire
from simulation.actors.appends import Appends

WRITER = b"w" * 16
SEGMENT = "a/b/0.#epoch.0"
REFUSED = wire.InvalidEventNumber(WRITER, 1, "", 2)


class _Connections:
    """A link and its connections, with scripted replies."""

    def __init__(self, answers) -> None:
        self._answers = answers
        self._sink = None
        self.dropped = 0

    async def connection(self, segment):
        return self

    def drop(self) -> None:
        self.dropped += 1

    def expect(self, sink) -> int:
        self._sink = sink
        return 1

    def send(self, parts) -> None:
        answer = self._answers.pop(0)
        call = self._sink.lost if isinstance(answer, Unavailable) else self._sink.reply
        asyncio.get_running_loop().call_soon(call, answer)


def test_late_setup_of_earlier_connection_is_no_error() -> None:
    """The store treated the late setup as the newer session (simulation seed 91034124)."""
    ready = wire.AppendSetup(1, SEGMENT, WRITER, 1)

    async def main() -> None:
        link = _Connections([Unavailable("the connection was stalled"), ready, REFUSED, ready])
        appends = Appends(link, WRITER, SEGMENT)
        with pytest.raises(Unavailable, match="stalled"):
            await appends.set_up()
        assert await appends.set_up() == 1
        with pytest.raises(Unavailable, match="came late"):
            await appends.block(b"event", 1, 2)
        assert link.dropped == 1
        assert await appends.set_up() == 1

    asyncio.run(main())


def test_first_session_of_writer_gets_no_refusal_from_itself() -> None:
    async def main() -> None:
        link = _Connections([wire.AppendSetup(1, SEGMENT, WRITER, NULL_ATTRIBUTE_VALUE), REFUSED])
        appends = Appends(link, WRITER, SEGMENT)
        assert await appends.set_up() == 0
        assert await appends.block(b"event", 1, 1) is REFUSED
        assert not link.dropped

    asyncio.run(main())
