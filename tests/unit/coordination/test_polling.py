"""Work that is repeated: after a wake-up, after a pause, and sooner after an outage."""

import asyncio
import logging

import pytest

from sarit.coordination import polls as polling
from sarit.core.errors import Invalid, Unavailable
from sarit.env.real import real_env
from tests.limits import HANG_SECONDS

LOG = logging.getLogger("sarit.test")


def attempts(outcomes, monkeypatch, *, wakes=False):
    """Poll until there are no more outcomes; the pauses after each attempt."""
    pauses, wake = [], asyncio.Event()

    async def attempt():
        outcome = outcomes.pop(0)
        if wakes:
            wake.set()
        if outcome is not None:
            raise outcome

    async def woken(event, seconds):
        pauses.append((seconds, event.is_set()))
        if not outcomes:
            raise EOFError

    async def main():
        async with asyncio.timeout(HANG_SECONDS):
            await polling.poll(attempt, wake, real_env().clock, LOG, "nothing works")

    monkeypatch.setattr(polling, "woken", woken)
    with pytest.raises(EOFError):
        asyncio.run(main())
    return pauses


def test_outage_shortens_the_pause_and_is_logged_once(monkeypatch, caplog):
    pauses = attempts([None, Unavailable("x"), Unavailable("x"), None, Unavailable("x")], monkeypatch)
    soon, late = polling.COORDINATION_RETRY_SECONDS, polling.COORDINATION_POLL_SECONDS
    assert [pause for pause, _ in pauses] == [late, soon, soon, late, soon]
    assert [record.message for record in caplog.records] == ["nothing works now: x"] * 2


def test_what_is_for_an_operator_is_critical(monkeypatch, caplog):
    attempts([Invalid("x"), Invalid("x")], monkeypatch)
    assert [(record.levelname, record.message) for record in caplog.records] == [("CRITICAL", "nothing works: x")]


def test_wake_up_during_an_attempt_is_not_lost(monkeypatch):
    assert [woken for _, woken in attempts([None, None], monkeypatch, wakes=True)] == [True, True]
