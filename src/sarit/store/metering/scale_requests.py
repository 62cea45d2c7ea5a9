"""Requests of a store that a segment be scaled, on their way to controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.core.metering import ScaleAdvice


class ScaleRequests:
    """Passes each request on to everybody who listens; without a listener it is dropped, and made again later."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str, ScaleAdvice], None]] = []

    def __repr__(self) -> str:
        return f"<ScaleRequests, {len(self._listeners)} listeners>"

    def listen(self, listener: Callable[[str, ScaleAdvice], None]) -> None:
        """Call `listener` with the segment and the advice of each request; it must not wait."""
        self._listeners.append(listener)

    def ignore(self, listener: Callable[[str, ScaleAdvice], None]) -> None:
        """Stop calling a listener."""
        self._listeners.remove(listener)

    def request(self, segment: str, advice: ScaleAdvice) -> None:
        """Pass a request on."""
        for listener in self._listeners:
            listener(segment, advice)
