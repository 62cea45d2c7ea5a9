"""What a check found: what is damaged, what is lost with it, what to do.  Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from sarit.core.errors import Invalid
from sarit.core.names import parse_segment_name


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was written (`damage`), or worth knowing.

    `start` and `end` are offsets of the segment's bytes that cannot be read."""

    message: str
    damage: bool = True
    container: int | None = None
    segment: str = ""
    start: int | None = None
    end: int | None = None
    lost: str = ""
    advice: str = ""

    @property
    def stream(self) -> str:
        """`scope/stream` of the segment; empty when it is not a stream's."""
        try:
            return str(parse_segment_name(self.segment)[0])
        except Invalid:
            return ""

    def as_json(self) -> dict[str, object]:
        """Fields for JSON."""
        return asdict(self) | {"stream": self.stream}

    def text(self) -> str:
        """Lines for people."""
        place = [] if self.container is None else [f"container {self.container}"]
        if self.segment:
            place.append(f"segment {self.segment}")
        if self.start is not None and self.end is not None:
            place.append(f"bytes {self.start} to {self.end}")
        head = f"{'DAMAGE' if self.damage else 'note'}  {', '.join(place)}{': ' if place else ''}{self.message}"
        lines = [head]
        if self.lost:
            lines.append(f"    lost: {self.lost}")
        if self.advice:
            lines.append(f"    do: {self.advice}")
        return "\n".join(lines)


@dataclass(slots=True)
class Report:
    """All findings of one check, what it read, and what it could not check."""

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    records: int = 0
    segments: int = 0
    chunks: int = 0
    chunk_bytes: int = 0

    @property
    def damaged(self) -> int:
        """How many findings are damage."""
        return sum(finding.damage for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        """Return the findings as one JSON document."""
        return {
            "damaged": self.damaged,
            "findings": [finding.as_json() for finding in self.findings],
            "unchecked": self.unchecked,
            "records": self.records,
            "segments": self.segments,
            "chunks": self.chunks,
            "chunk_bytes": self.chunk_bytes,
        }
