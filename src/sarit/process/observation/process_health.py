"""The health of a node in several processes: stores report theirs to the parent, which sends it to the controller.

The controller has the HTTP port of the node, and answers for all of it.  It is not asked of the stores' ports: a store
that stands still or has ended cannot answer."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

from sarit.admin.reasons import Reason
from sarit.env.background import shielded
from sarit.process.limits import CHILD_HEARTBEAT_SECONDS, MAX_HEARTBEAT_BYTES, MAX_REASON_CHARACTERS, MISSED_HEARTBEATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sarit.core.errors import SaritError


def encode_reasons(reasons: Iterable[Reason]) -> list[tuple[Any, ...]]:
    """For JSON, of at most MAX_HEARTBEAT_BYTES.  What keeps a process from serving comes first, and so is left."""
    rows: list[tuple[Any, ...]] = []
    left = MAX_HEARTBEAT_BYTES
    for reason in sorted(reasons, key=lambda reason: reason.ready):
        row = astuple(replace(reason, text=reason.text[:MAX_REASON_CHARACTERS]))
        left -= len(json.dumps(row)) + len(", ")
        if left < 0:
            break
        rows.append(row)
    return rows


def decode_reasons(rows: Iterable[Sequence[Any]]) -> list[Reason]:
    """Return the inverse of `encode_reasons`."""
    return [Reason(*row) for row in rows]


class ProcessHealth:
    """The health of one process, as its parent knows it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: list[Reason] = []
        self._away = "it starts"  # why it says nothing; empty: it does
        self._silent_seconds = 0.0

    def __repr__(self) -> str:
        return f"<ProcessHealth of {self._name}>"

    def away(self, why: str) -> None:
        """Record that the process is not running.  `why`: the text that `reasons` gives until its next heartbeat."""
        self._away, self._silent_seconds = why, 0.0

    def silent(self, seconds: float) -> None:
        """Note for how long the process has sent no heartbeat."""
        self._silent_seconds = seconds

    def said(self, rows: Iterable[Sequence[Any]]) -> None:
        """Take a heartbeat of the process, with the reasons it gives."""
        self._away, self._silent_seconds = "", 0.0
        self._said = decode_reasons(rows)

    def reasons(self) -> list[Reason]:
        """Return why it does not serve, or not as it should; each part begins with the name of the process."""
        if self._away:
            return [Reason("starting", self._name, self._away)]
        if self._silent_seconds >= MISSED_HEARTBEATS * CHILD_HEARTBEAT_SECONDS:
            return [Reason("stands-still", self._name, f"no heartbeat for {self._silent_seconds:g} s")]
        return [
            reason if reason.part == self._name else replace(reason, part=f"{self._name}, {reason.part}")
            for reason in self._said
        ]


class StoresReport:
    """The report on the stores that the parent sends to the controller."""

    def __init__(self) -> None:
        self._ports: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._reasons: list[Reason] = []

    def __repr__(self) -> str:
        return f"<StoresReport, {len(self._reasons)} reasons>"

    @staticmethod
    def encode(ports: Sequence[int], reasons: Iterable[Reason]) -> bytes:
        """Return one line without its end.  `ports`: none until all stores serve."""
        return json.dumps({"ports": list(ports), "reasons": [astuple(reason) for reason in reasons]}).encode()

    def take(self, line: bytes) -> None:
        """Take a report that has arrived."""
        report = json.loads(line)
        self._reasons = decode_reasons(report["reasons"])
        if report["ports"] and not self._ports.done():
            self._ports.set_result(report["ports"])

    async def ports(self) -> list[int]:
        """Wait until all stores serve.  Returns their ports, which do not change."""
        return await shielded(self._ports)

    def reasons(self) -> list[Reason]:
        """Return what is wrong with stores now."""
        return self._reasons


def describe_exit(code: int, failure: SaritError | None) -> str:
    """Return how a process ended, in words."""
    if failure is not None:
        return f"failed ({failure})"
    if code < 0:
        try:
            return f"was ended by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with code {code}"
