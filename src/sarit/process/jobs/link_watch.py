"""The links that a process carries out, as its metrics and its health show them.

A link that is paused has neither a lag nor a state here: nobody wants it to copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.admin.reasons import Reason
from sarit.controller.jobs import printable
from sarit.process.limits import LINK_FAILING_SECONDS, SERIES_AFTER_END_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.core.links import LinkStatus
    from sarit.env.ports import Clock


@dataclass(slots=True)
class _Seen:
    """One link.  `copies`: it is not paused.  `down_since`: None while it is up.  `ended`: when its last run failed;
    None: it runs."""

    status: LinkStatus
    copies: bool
    down_since: float | None = None
    ended: float | None = None


class LinkWatch:
    """The links of this process by name: how far they are, and since when one is down."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, _Seen] = {}

    def __repr__(self) -> str:
        return f"<LinkWatch of {len(self._links)} links>"

    def note(self, name: str, status: LinkStatus, *, copies: bool) -> None:
        """Note how far a link is.  `copies`: it is not paused."""
        seen = self._links.setdefault(name, _Seen(status, copies))
        seen.status, seen.copies, seen.ended = status, copies, None
        if status.up or not copies:
            seen.down_since = None
        elif seen.down_since is None:
            seen.down_since = self._clock.monotonic()

    def forget(self, name: str) -> None:
        """Forget a link: it is over, or another worker has it."""
        self._links.pop(name, None)

    def fail(self, name: str) -> None:
        """Note the failure of a link's run, which is begun again, perhaps elsewhere."""
        if (seen := self._links.get(name)) is not None:
            seen.ended = self._clock.monotonic()
            if seen.copies and seen.down_since is None:
                seen.down_since = seen.ended

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the links; of one whose run failed, not for long."""
        self._forget_old()
        for name, seen in sorted(self._links.items()):
            status, label = seen.status, (name,)
            yield "sarit_link_copied_bytes_total", label, status.copied_bytes
            yield "sarit_link_lost_bytes_total", label, status.lost_bytes
            if seen.copies:
                yield "sarit_link_up", label, int(seen.down_since is None)
                yield "sarit_link_lag_bytes", label, status.lag_bytes
                yield "sarit_link_lag_seconds", label, status.lag_seconds
                yield "sarit_link_failing_streams", label, status.failing

    def reasons(self) -> list[Reason]:
        """Return the links that have been down for long: what they copy waits, and nothing else of the process."""
        self._forget_old()
        now = self._clock.monotonic()
        return [
            Reason(
                "link-down", f"link {name}",
                f"it is down for {now - seen.down_since:.0f} s: {printable(seen.status.note) or 'no contact'}",
                ready=True,
            )
            for name, seen in sorted(self._links.items())
            if seen.down_since is not None and now - seen.down_since >= LINK_FAILING_SECONDS
        ]  # fmt: skip

    def _forget_old(self) -> None:
        """Forget links whose runs failed, and began elsewhere if they did."""
        oldest = self._clock.monotonic() - SERIES_AFTER_END_SECONDS
        for name in [n for n, each in self._links.items() if each.ended is not None and each.ended < oldest]:
            del self._links[name]
