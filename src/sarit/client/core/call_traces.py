"""The traces of calls of the controller: each call gets a request id, from which both sides derive its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.env.traces import CLIENT_CALL

if TYPE_CHECKING:
    from sarit.env.ports import Env
    from sarit.env.traces import Traces


class CallTraces:
    """The traces of one client's calls."""

    def __init__(self, traces: Traces, env: Env) -> None:
        self._traces = traces
        self._env = env

    @classmethod
    def of(cls, env: Env) -> CallTraces | None:
        """None: nobody asked for traces."""
        return cls(env.traces, env) if env.traces is not None else None

    def begin(self) -> float:
        """Return the time when a call begins, for `ended`."""
        return self._env.clock.monotonic()

    def ended(self, request_id: str, began: float, method: str, controller: str) -> None:
        """Record the span of a call that has ended, with or without an error."""
        trace = self._traces.of_call(request_id)
        if trace is not None:
            now = self._env.clock.monotonic()
            self._traces.record(trace, CLIENT_CALL, None, began, now, method=method, controller=controller)
