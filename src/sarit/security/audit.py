"""The audit log: a JSON line for each decision, with who asked for what, from where, and whether it was allowed.

Reads and writes of data appear once for each token, not for each request.

*Bounds.*  Each field is cut to a length.  Refusals that are alike have one line a minute: before a log-in those of the
same network and reason, after it those of the same user, network, call and resource.  The next line, or a separate one,
says how many were left out.  So callers whose requests are refused cannot fill the file.

*Off the loop.*  Up to AUDIT_QUEUE_BYTES of lines wait in memory for a thread that writes them.  Lines beyond that, and
lines that could not be written, are counted as lost: the log of the process says so once a minute, and the audit log
itself as soon as it can be written again.  The process goes on serving.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.core.networks import network_of_peer
from sarit.core.repeated_log import RepeatedLog
from sarit.core.texts import cut_text
from sarit.security.limits import (
    AUDIT_CLOSE_SECONDS,
    AUDIT_QUEUE_BYTES,
    AUDIT_REPEATED_SECONDS,
    MAX_AUDIT_CHARACTERS,
    MAX_AUDIT_REASONS,
)

if TYPE_CHECKING:
    from sarit.env.ports import Env

_log = logging.getLogger("sarit.security")

_OTHERS: Final = "various"


class Audit(Protocol):
    """Where decisions are noted."""

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """Note one decision.  `who`: the user; empty before a log-in.  `what`: the call.  `resource`: as named in
        `permissions`.  `peer`: address and port.  `why`: the reason; up to its first colon it must not contain any text
        from the client."""


class NoAudit:
    """Notes nothing."""

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """Ignore a decision."""


class LineFile(Protocol):
    """A file of lines.  Calls block, and raise OSError."""

    def append(self, lines: bytes) -> None:
        """Write whole lines at the end."""

    def close(self) -> None:
        """Close the file of the audit log."""


class AuditLog:
    """Writes lines to a file, on a thread of its own."""

    def __init__(self, env: Env, file: LineFile) -> None:
        self._clock = env.clock
        self._file = file
        self._worker = env.threads.worker("audit")
        self._before_login = _Repeated()
        self._after_login = _Repeated()
        self._waiting: list[bytes] = []
        self._bytes = 0  # of all lines that wait or are being written
        self._writing = False
        self._lost = 0
        self._closed = False
        self._repeated = RepeatedLog(_log, env.clock.monotonic)

    def __repr__(self) -> str:
        return f"<AuditLog to {self._file!r}, {len(self._waiting)} lines wait>"

    def note(self, *, who: str, what: str, resource: str, peer: str, allowed: bool, why: str = "") -> None:
        """Queue a line, unless it is a refusal like one that was noted within the last minute."""
        if self._closed:
            return
        line: dict[str, Any] = {
            "who": _cut(who),
            "what": _cut(what),
            "resource": _cut(resource),
            "from": _cut(peer),
        }
        line["allowed"] = allowed
        if why:
            line["why"] = _cut(why)
        if not allowed:
            network, now = network_of_peer(peer), self._clock.monotonic()
            if who:
                left_out = self._after_login.again((line["who"], network, line["what"], line["resource"]), now, line)
            else:
                left_out = self._before_login.again((network, _cut(why.partition(": ")[0])), now, line)
            if left_out is None:
                return
            if left_out:
                line["left_out"] = left_out
        self._put(line)

    def tick(self) -> None:
        """Write how many refusals were left out in the minutes that have ended.  To be called every few seconds."""
        self._put_left_out(self._clock.monotonic() - AUDIT_REPEATED_SECONDS)

    async def close(self) -> None:
        """Write the lines that wait, and end the thread, within AUDIT_CLOSE_SECONDS."""
        if self._closed:
            return
        self._put_left_out(self._clock.monotonic())
        self._closed = True
        try:
            # At most two jobs of the thread are left: the lines that are being written, and those that wait.
            await asyncio.wait_for(self._finish(), AUDIT_CLOSE_SECONDS)
        except TimeoutError:
            self._worker.close().close()  # the thread ends with its write: nobody waits for that
            lines = len(self._waiting)
            _log.error("the audit log was not written to its end: its disk stands still, %d lines are lost", lines)

    async def _finish(self) -> None:
        while self._writing or self._waiting:
            self._write()
            await self._worker.run(lambda: None)
        await self._worker.close()
        self._file.close()
        if self._lost:
            _log.error("the audit log has %d lines less than there were decisions", self._lost)

    def _put_left_out(self, until: float) -> None:
        for repeated in (self._before_login, self._after_login):
            for line in repeated.ended(until):
                self._put(line)

    def _put(self, line: dict[str, Any]) -> None:
        data = json.dumps({"ms": self._clock.wall_ms(), **line}, ensure_ascii=True).encode() + b"\n"
        if self._bytes + len(data) > AUDIT_QUEUE_BYTES:
            self._lost += 1
            self._repeated.error("full", "decisions come faster than the audit log can be written: lines are lost")
            return
        self._waiting.append(data)
        self._bytes += len(data)
        self._write()

    def _write(self) -> None:
        """Give all lines that wait to the thread, unless it is writing."""
        if self._writing or not self._waiting:
            return
        lines, self._waiting = self._waiting, []
        lost = self._lost
        if lost:
            said = {"ms": self._clock.wall_ms(), "lost": lost, "why": "lines before this one could not be written"}
            lines.insert(0, json.dumps(said).encode() + b"\n")
        data = b"".join(lines)
        self._writing = True

        def done(_: None, error: BaseException | None) -> None:
            self._writing = False
            self._bytes = sum(map(len, self._waiting))
            if error is None:
                self._lost -= lost
                self._repeated.ended("write")
            else:
                self._lost += len(lines) - bool(lost)
                self._repeated.error("write", f"the audit log cannot be written, {self._lost} lines are lost: {error}")
            if not self._closed:
                self._write()

        self._worker.submit(lambda: self._file.append(data), done)


@dataclass(slots=True)
class _Noted:
    since: float
    line: dict[str, Any]
    left_out: int = 0


class _Repeated:
    """The refusals of the last AUDIT_REPEATED_SECONDS, by what makes them alike; at most MAX_AUDIT_REASONS."""

    def __init__(self) -> None:
        self._noted: OrderedDict[tuple[str, ...], _Noted] = OrderedDict()  # the oldest first
        self._others = 0

    def again(self, key: tuple[str, ...], now: float, line: dict[str, Any]) -> int | None:
        """Count a refusal.  Returns None if its line is to be left out, or else how many like it were left out."""
        found = self._noted.get(key)
        if found is not None and now - found.since < AUDIT_REPEATED_SECONDS:
            found.left_out += 1
            return None
        if found is None and len(self._noted) >= MAX_AUDIT_REASONS:
            oldest = next(iter(self._noted.values()))
            if now - oldest.since < AUDIT_REPEATED_SECONDS or oldest.left_out:
                self._others += 1
                return None
            self._noted.popitem(last=False)
        self._noted.pop(key, None)
        self._noted[key] = _Noted(now, line)
        return 0 if found is None else found.left_out

    def ended(self, until: float) -> list[dict[str, Any]]:
        """Forget the refusals noted up to `until`.  Returns a line for each kind of which some were left out."""
        lines = []
        while self._noted and next(iter(self._noted.values())).since <= until:
            _, noted = self._noted.popitem(last=False)
            if noted.left_out:
                lines.append({**noted.line, "left_out": noted.left_out})
        if self._others and len(self._noted) < MAX_AUDIT_REASONS:
            lines.append({"who": "", "from": _OTHERS, "allowed": False, "left_out": self._others})
            self._others = 0
        return lines


def _cut(text: str) -> str:
    return cut_text(text, MAX_AUDIT_CHARACTERS)
