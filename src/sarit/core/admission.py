"""How many may be in at once, and when it is worth saying that nobody else may come in.  Pure."""

from __future__ import annotations


class Admission:
    """Judges newcomers by how many are in already.

    Thousands may be refused in a second: `should_report` is true for one of them, and again only after a tenth of the
    places was free meanwhile."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._reported = False

    def __repr__(self) -> str:
        return f"<Admission of {self.most}>"

    def admits(self, inside: int) -> bool:
        """Whether one more may come in when `inside` are."""
        if inside < self.most - self.most // 10:
            self._reported = False
        return inside < self.most

    def should_report(self) -> bool:
        """Whether this refusal should be reported."""
        reported, self._reported = self._reported, True
        return not reported
