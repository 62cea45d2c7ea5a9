"""A store's requests to scale a segment, on their way to controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.core.metering import ScaleAdvice


class ScaleRequests:
    """The listeners for requests to scale a segment; a request without a listener is dropped, and repeated later."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str, ScaleAdvice], None]] = []

    def __repr__(self) -> str:
        return f"<ScaleRequests, {len(self._listeners)} listeners>"

    def listen(self, listener: Callable[[str, ScaleAdvice], None]) -> None:
        """Call `listener` with the segment and the advice of each request; the call must not block."""
        self._listeners.append(listener)

    def ignore(self, listener: Callable[[str, ScaleAdvice], None]) -> None:
        """Stop calling a listener."""
        self._listeners.remove(listener)

    def request(self, segment: str, advice: ScaleAdvice) -> None:
        """Call all listeners with the request to scale a segment."""
        for listener in self._listeners:
            listener(segment, advice)
