"""The hand-over of a container to another store, in which no operation in flight is lost or left without an answer.

The writers' sessions leave first: new appends wait in the sessions, like those that the append gate throttles.  Then
all operations in flight become durable and are answered.  From then on the container refuses everything with Moved: a
refused operation did not happen.  When log and index are closed, another store may open them, and the appends that
waited are refused: the client asks the controller where the container is.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sarit.core.errors import Moved, SaritError
from sarit.store.container.group_commit import answer_each, call_each
from sarit.store.container.writer_session import leave_owners

if TYPE_CHECKING:
    from sarit.store.container.container import Container


class Departure:
    """The departure of one container.  The constructor begins it: no writer is set up from then on."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._throttled = list(container.append_gate.fail())
        self._sessions = leave_owners(container.state.segments.values())

    def __repr__(self) -> str:
        return f"<Departure of {self._container!r}, {len(self._sessions)} writers>"

    def moved(self) -> Moved:
        """Return the error that refuses a request: a new object for each, since each gets its own traceback."""
        return Moved(f"container {self._container.number} has left this store")

    async def complete_pending(self) -> None:
        """Wait until everything in flight is durable, or the container has failed; then refuse the rest with Moved."""
        container = self._container
        with suppress(SaritError):
            while container.failure is None and not container.group_commit.idle:
                await container.group_commit.wait_durable()
        if container.failure is None:
            container.fail(self.moved())

    def send_away(self) -> None:
        """Refuse the appends that waited, now that another store may open the container."""
        throttled, self._throttled = self._throttled, []
        sessions, self._sessions = self._sessions, []
        bug = answer_each((partial(session.refuse, append) for session, append in throttled), self.moved())
        bug = call_each(partial(session.sink.moved, session) for session in sessions) or bug
        if bug is not None:
            raise bug
