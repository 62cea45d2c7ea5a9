"""The policy of retries: when the next attempt is made, and when there is none."""

from __future__ import annotations

import asyncio

import pytest

from sarit.client.core.deadline import within
from sarit.client.core.retry import Attempts, NotAnswered, NotSent, RetryPolicy, Silent, gave_up
from sarit.client.session.session import Backoff, Session
from sarit.core.errors import NotFound, TimedOut, Unavailable, Unreachable
from sarit.env.real import real_env
from tests.limits import HANG_SECONDS


def pauses(policy: RetryPolicy, took: float = 0.0, random: float = 0.5, others: int = 1000) -> list[float]:
    """The pauses of a call whose attempts fail after `took` seconds each, beside `others` that pause."""
    attempts, now, found = Attempts(policy), 100.0, []
    attempts.begin(now)
    while True:
        now += took
        pause = attempts.failed(now, random, pauses=others)
        if pause is None:
            return found
        found.append(pause)
        now += pause


def test_pauses_double_up_to_the_maximum_and_end_with_the_timeout() -> None:
    found = pauses(RetryPolicy(10.0, first_delay=1.0, max_delay=4.0))
    assert found == [0.0, 1.0, 2.0, 4.0, 3.0]  # the last one ends at the timeout
    assert sum(found) == 10.0


def test_attempt_at_the_end_of_the_time_is_the_last_one() -> None:
    """Rounding left a rest of 7e-15 s, and pauses of that length did not move the clock."""
    attempts = Attempts(RetryPolicy(1.0, first_delay=1.0))
    attempts.begin(0.0)
    assert attempts.failed(0.0, 0.5) == 0.0
    assert attempts.failed(0.5, 0.5, pauses=1000) == 0.5
    assert attempts.left(1.0 - 7e-15) > 0
    assert attempts.failed(1.0 - 7e-15, 0.5) is None
    attempts.reset()
    attempts.begin(1.0)
    assert attempts.failed(1.0, 0.5) == 0.0


def test_few_pauses_stay_short_and_many_grow_to_seconds() -> None:
    policy = RetryPolicy(100.0)
    assert max(pauses(policy, others=0)) == 0.5
    assert max(pauses(policy, others=50)) == 1.0
    # Never more than so many attempts in a second, until the longest pause is reached.
    assert max(pauses(policy, others=5000)) == 2.0


def test_jitter_is_half_to_one_and_a_half() -> None:
    policy = RetryPolicy(100.0, first_delay=1.0, max_delay=1.0)
    assert pauses(policy, random=0.0)[1:4] == [0.5, 0.5, 0.5]
    assert pauses(policy, random=1.0)[1:4] == [1.5, 1.5, 1.5]


def test_time_of_attempts_counts() -> None:
    """Only pauses counted: over a path that swallows everything, 30 s of pauses took many minutes."""
    assert len(pauses(RetryPolicy(10.0, first_delay=0.001, max_delay=0.001), took=2.5)) == 3


def test_timeout_of_zero_makes_one_attempt() -> None:
    assert pauses(RetryPolicy(0.0)) == []


def test_time_in_which_the_node_answers_does_not_count() -> None:
    attempts = Attempts(RetryPolicy(10.0))
    attempts.begin(0.0)
    attempts.answered(2.0)
    assert attempts.failed(1000.0, 0.5) == 0.0
    assert attempts.left(1003.0) == 5.0
    attempts.answered(1003.0)
    assert attempts.failed(2000.0, 0.5) is not None
    assert attempts.failed(2005.0, 0.5) is None
    attempts.reset()
    assert attempts.left(3000.0) == 10.0


def test_idle_time_before_a_failure_counts_up_to_half() -> None:
    attempts = Attempts(RetryPolicy(10.0))
    assert attempts.failed(100.0, 0.5, silent=3.0) == 0.0
    assert attempts.left(100.0) == 7.0
    attempts.reset()
    assert attempts.failed(100.0, 0.5, silent=300.0) == 0.0
    assert attempts.left(100.0) == 5.0


@pytest.mark.parametrize(
    ("timeout", "attempt", "keep_alive"),
    [(300.0, 60.0, 10.0), (30.0, 15.0, 3.75), (3.0, 1.5, 0.375), (0.3, 1.0, 0.125), (0.0, 1.0, 0.125)],
)
def test_attempt_and_idle_time_are_half_of_the_timeout(timeout: float, attempt: float, keep_alive: float) -> None:
    policy = RetryPolicy(timeout)
    assert (policy.attempt_seconds, policy.keep_alive_seconds) == (attempt, keep_alive)


class NoController:
    """A session needs one."""

    address = "nowhere:1"

    async def close(self) -> None:
        pass


def on_session(timeout: float):
    def decorate(test):
        def run() -> None:
            async def go() -> None:
                async with asyncio.timeout(HANG_SECONDS):
                    await test(Session(real_env(), NoController(), RetryPolicy(timeout, min_attempt=0.01)))

            asyncio.run(go())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@on_session(0.05)
async def test_call_without_an_answer_ends_in_time(session) -> None:
    with pytest.raises(Unavailable, match="did not answer"):
        await session.with_retry(asyncio.Event().wait)


@on_session(60.0)
async def test_deletion_repeated_after_a_lost_answer_succeeds(session) -> None:
    """The first attempt had deleted it: the second one's NotFound was reported as if nothing had been there."""
    outcomes = [Unavailable("the reply was lost"), NotFound("gone")]

    async def delete() -> None:
        raise outcomes.pop(0)

    await session.with_retry_of_deletion(delete)


@on_session(60.0)
async def test_deletion_that_was_not_sent_before_raises_not_found(session) -> None:
    outcomes = [NotSent("refused"), NotFound("never there")]

    async def delete() -> None:
        raise outcomes.pop(0)

    with pytest.raises(NotFound):
        await session.with_retry_of_deletion(delete)


@on_session(0.2)
async def test_idle_time_shortens_the_retries(session) -> None:
    backoff = Backoff(session.env, session.policy)
    await backoff.wait(Silent("no keep-alive", 1000.0))
    began = session.env.clock.monotonic()
    with pytest.raises(Unavailable, match="gave up after 0.2 s"):
        while True:
            await backoff.wait(Silent("no keep-alive", 1000.0))
    assert session.env.clock.monotonic() - began >= 0.09


@on_session(60.0)
async def test_pauses_of_one_client_are_counted_together(session) -> None:
    waiting = [session.backoff() for _ in range(3)]
    for backoff in waiting:
        await backoff.wait(Unavailable("the first retry follows at once"))
    tasks = [asyncio.create_task(backoff.wait(Unavailable("away"))) for backoff in waiting]
    await asyncio.sleep(0)
    assert session.pauses.count == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert session.pauses.count == 0


REFUSED, NO_ANSWER, BUSY = NotSent("refused"), NotAnswered("no answer"), Unavailable("throttled")


@pytest.mark.parametrize(
    ("error", "of_call", "kind"),
    [
        (REFUSED, True, Unreachable),
        (REFUSED, False, Unreachable),
        (Silent("nothing came", 3.0), True, Unreachable),
        (NO_ANSWER, True, TimedOut),
        (NO_ANSWER, False, Unreachable),  # a loop with time-outs of its own took it for one of them, for ever
        (BUSY, True, Unavailable),
    ],
)
def test_error_at_the_end_says_whether_a_node_was_reached(error, of_call, kind) -> None:
    made = gave_up(error, 3.0, of_call=of_call)
    assert type(made) is kind
    assert made.final
    assert str(made) == f"gave up after 3 s of trying: {error}"


@on_session(0.0)
async def test_call_that_gave_up_is_not_repeated_by_its_caller(session) -> None:
    """`TimedOut` is a TimeoutError, as the end of an attempt is: the outer call began again."""
    calls = 0

    async def silent() -> None:
        nonlocal calls
        calls += 1
        raise NotAnswered("no answer")

    with pytest.raises(TimedOut):
        await session.with_retry(lambda: session.with_retry(silent), RetryPolicy(60.0))
    assert calls == 1


@on_session(0.0)
async def test_time_of_a_read_is_not_confused_with_that_of_a_call(session) -> None:
    """`within` returned None, as if nothing had come, when the client had given up on the node."""

    async def gives_up() -> None:
        raise TimedOut("gave up")

    with pytest.raises(TimedOut):
        await within(60.0, gives_up())
    assert await within(0.001, asyncio.sleep(60)) is None
