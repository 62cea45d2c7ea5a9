"""A limit on connections, and when to log that it is reached.  Pure."""

from __future__ import annotations


class Admission:
    """Admits connections up to a limit.

    Thousands may be refused in a second.  `should_report` is true for one of them, and again only after a tenth of the
    limit was free."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._reported = False

    def __repr__(self) -> str:
        return f"<Admission of {self.most}>"

    def admits(self, inside: int) -> bool:
        """Return whether one more is admitted when `inside` are open."""
        if inside < self.most - self.most // 10:
            self._reported = False
        return inside < self.most

    def should_report(self) -> bool:
        """Return whether this refusal should be reported."""
        reported, self._reported = self._reported, True
        return not reported
