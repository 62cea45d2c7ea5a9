"""For how long a call is tried again, and how often (pure: the caller gives time and chance).

There is one `RetryPolicy` per client, and every call of the client obeys it.  `timeout` is the time to go on trying:

* A call that the node does not answer raises Unavailable once `timeout` seconds have passed since it began.
* What lives longer than a call (a writer, a reader) fails once the node was away for `timeout` seconds.  The time in
  which the node answers does not count, however slow it is: a throttled append waits, and is not given up.

The first retry follows at once.  Pauses then double from `first_delay` to `longest_delay`, each times a factor of 0.5
to 1.5: clients that failed together do not return together.  The longest pause depends on how many pauses of the
client run at the same time: few of them may be short, and many make no more than `RETRIES_PER_SECOND` attempts.

An attempt gets half of `timeout`, so that a lost path leaves time to try another one; at least `min_attempt`, so that a
slow node is not taken for an absent one; at most `max_attempt`.  A connection without any byte for half of `timeout` is
taken for lost, for the same reason (`connection.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sarit.client.limits import (
    CLIENT_KEEP_ALIVE_SECONDS,
    CONTROLLER_CALL_SECONDS,
    DEAD_AFTER_KEEP_ALIVES,
    DEFAULT_RETRY_TIMEOUT_SECONDS,
    FIRST_RETRY_DELAY_SECONDS,
    MAX_RETRY_DELAY_SECONDS,
    MIN_ATTEMPT_SECONDS,
    RETRIES_PER_SECOND,
    SOON_RETRY_DELAY_SECONDS,
)
from sarit.core.errors import SaritError, TimedOut, Unavailable, Unreachable


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """All in seconds.  `timeout` 0: one attempt."""

    timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS
    min_attempt: float = MIN_ATTEMPT_SECONDS
    max_attempt: float = CONTROLLER_CALL_SECONDS
    first_delay: float = FIRST_RETRY_DELAY_SECONDS
    max_delay: float = MAX_RETRY_DELAY_SECONDS

    @property
    def attempt_seconds(self) -> float:
        """The time for one attempt."""
        return self.attempt_of(1)

    def attempt_of(self, controllers: int) -> float:
        """Return the time for one attempt of a call that any of some controllers answers: each gets one."""
        return min(max(self.timeout / (controllers + 1), self.min_attempt), self.max_attempt)

    @property
    def keep_alive_seconds(self) -> float:
        """Between two requests for an echo: a silent connection ends within half of the timeout."""
        longest = max(self.timeout, self.min_attempt) / 2
        return min(CLIENT_KEEP_ALIVE_SECONDS, longest / (DEAD_AFTER_KEEP_ALIVES + 1))

    def next_delay(self, delay: float) -> float:
        """Return the pause after one of `delay`, before it is drawn; the first is 0."""
        return min(max(delay * 2, self.first_delay), self.max_delay)

    def longest_delay(self, pauses: int) -> float:
        """Return the longest pause, before it is drawn, while so many others of the client run."""
        return min(max(pauses / RETRIES_PER_SECOND, SOON_RETRY_DELAY_SECONDS), self.max_delay)


class Lost(Unavailable):
    """The connection was lost, or there was none."""


class Silent(Lost):
    """A connection ended because no byte came for `seconds`: that time was spent waiting for the node, too."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class NotSent(Lost):
    """No connection could be made: the node has certainly not seen the request."""


class NotAnswered(Unavailable):
    """The time for an attempt has passed without an answer."""


def gave_up(error: SaritError, seconds: float, *, of_call: bool) -> Unavailable:
    """Return the error to raise when `seconds` of attempts have passed, of which `error` ended the last.

    `of_call` False: what lives longer than a call could not reach a node, silent or not.  That is no time-out: a
    program that reads with time-outs of its own, and tries again after each, must see it."""
    kind: type[Unavailable] = Unavailable
    if isinstance(error, Lost) or (isinstance(error, NotAnswered) and not of_call):
        kind = Unreachable
    elif isinstance(error, NotAnswered):
        kind = TimedOut
    made = kind(f"gave up after {seconds:g} s of trying: {error}" if seconds else str(error))
    made.final = True
    return made


class Attempts:
    """One series of attempts: from the first one to success, or to the end of the policy's timeout.

    Its clock runs from `begin` to `answered`, and again from the next failure: only the time without a node counts."""

    __slots__ = ("_away_since", "_delay", "_last", "_spent", "policy")

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._delay = 0.0
        self._spent = 0.0
        self._last = False
        self._away_since: float | None = None

    def __repr__(self) -> str:
        return f"Attempts({self._spent:.3f} s spent, next after {self._delay} s)"

    def reset(self) -> None:
        """Forget the failures after a success: the next one starts a new series."""
        self._delay = self._spent = 0.0
        self._last = False
        self._away_since = None

    def begin(self, now: float) -> None:
        """Start the time of an attempt, which counts towards the timeout."""
        if self._away_since is None:
            self._away_since = now

    def answered(self, now: float) -> None:
        """Stop the time of an attempt, because the node answers, although the call has not succeeded yet."""
        if self._away_since is not None:
            self._spent += now - self._away_since
            self._away_since = None

    def left(self, now: float) -> float:
        """Seconds until the timeout; 0 or less when it has passed."""
        away = 0.0 if self._away_since is None else now - self._away_since
        return self.policy.timeout - self._spent - away

    def failed(self, now: float, random: float, silent: float = 0.0, pauses: int = 0) -> float | None:
        """Return the pause before the next attempt; None when the timeout has passed.  `random` is in [0, 1).

        `silent`: for how long the node had not answered before.  Half of the timeout always remains.  `pauses`: how
        many others of the client run."""
        if self._away_since is None:
            self._away_since = now - min(silent, self.policy.timeout / 2)
        left = self.left(now)
        # What rounding leaves of the time after the last attempt is shorter than any clock measures.
        if left <= 0 or self._last:
            return None
        pause = min(self._delay, self.policy.longest_delay(pauses)) * (0.5 + random)
        self._delay = self.policy.next_delay(self._delay)
        # The last attempt is made at the end of the time, not after it.
        self._last = pause >= left
        return min(pause, left)
