"""All tests of the client: the invariants of each segment appender hold after every step."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from sarit.client.writer.segment_appender import SegmentAppender

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = (
    "add",
    "connecting",
    "opened_at",
    "disconnected",
    "blocks",
    "acked",
    "large_done",
    "seal",
    "take_unacknowledged",
)


def checked(step: Callable[..., Any], running: list[Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapper(appender: SegmentAppender, *args: Any, **named: Any) -> Any:
        running.append(step)
        try:
            result = step(appender, *args, **named)
        finally:
            running.pop()
        if not running:  # within a step an invariant may not hold
            appender.check()
        return result

    return wrapper


@pytest.fixture(autouse=True)
def invariants_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[Callable[..., Any]] = []
    for step in STEPS:
        monkeypatch.setattr(SegmentAppender, step, checked(getattr(SegmentAppender, step), running))
