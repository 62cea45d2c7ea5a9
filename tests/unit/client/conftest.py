"""All tests of the client: invariants of segment appenders and partitioners hold after every step."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from sarit.client.writer.partitioner import Partitioner
from sarit.client.writer.segment_appender import SegmentAppender

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: dict[type[SegmentAppender | Partitioner], tuple[str, ...]] = {
    SegmentAppender: (
        *("add", "connecting", "opened_at", "disconnected", "blocks", "acked"),
        *("large_done", "seal", "take_unacknowledged"),
    ),
    Partitioner: ("partition", "dispatch", "progressed", "_hand_over"),
}


def checked(step: Callable[..., Any], running: list[Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapper(machine: SegmentAppender | Partitioner, *args: Any, **named: Any) -> Any:
        running.append(step)
        try:
            result = step(machine, *args, **named)
        finally:
            running.pop()
        if not running:  # within a step an invariant may not hold
            machine.check()
        return result

    return wrapper


@pytest.fixture(autouse=True)
def invariants_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for machine, steps in STEPS.items():
        running: list[Callable[..., Any]] = []
        for step in steps:
            monkeypatch.setattr(machine, step, checked(getattr(machine, step), running))
