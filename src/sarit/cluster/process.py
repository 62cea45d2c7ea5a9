"""What a store and a controller of a cluster have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.core.errors import SaritError
    from sarit.process.admin import Admin
    from sarit.process.reload import LiveSettings


class Process(Protocol):
    """One process of a cluster."""

    @property
    def failure(self) -> SaritError | None:
        """Why it cannot go on; None while it can."""

    def notify_failure(self, ended: Callable[[], None]) -> None:
        """Have `ended` called when there is a failure: the process stops then."""

    async def start(self, admin: Admin) -> None:
        """Serve when this returns.  Raises SaritError, OSError."""

    def take_over(self, live: LiveSettings) -> None:
        """Go on with other settings."""

    def skip_flush(self) -> None:
        """Let `stop` wait for nothing."""

    async def stop(self) -> None:
        """Stop serving and close everything."""
