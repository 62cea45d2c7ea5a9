"""The state of a committer, as its job stores it (pure).  Format: docs/formats/iceberg.md.

An intent is stored before anything of it is written, and says everything that its rows depend on: two cuts, the time
`ingested` of its rows, how their values are decoded, and the id of its commit.  Whoever finds it finishes it unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sarit.core import cuts
from sarit.core.errors import Corrupt, Invalid

if TYPE_CHECKING:
    from sarit.core.cuts import StreamCut

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """The next commit: the events from `start` to `end`, by the commit of this id.

    `ingested_ms`: the time of the newest recorded cut at or before `start`, since 1970.  `columns`: how values are
    decoded, as `Columns.choose` gave it."""

    commit: str
    start: StreamCut
    end: StreamCut
    ingested_ms: int
    columns: str


@dataclass(frozen=True, slots=True)
class JobState:
    """The progress of a committer.

    `table_uuid`, `stream_id`: which table of which stream; empty: none yet.  `chain`, `noted`: the commits that the
    table named when it was last seen, by its snapshots and by its properties; empty: none.  `sequence`: of its newest
    snapshot then.  `cut`: everything before is in the table.  `intent`: what may be half written.  `columns`: how
    values were decoded last.  `rows`, `dead_letters`, `lost_bytes`, `files`, `commits`: sums of all commits.
    `committed_ms`: when the last one was made."""

    table_uuid: str = ""
    stream_id: str = ""
    chain: str = ""
    noted: str = ""
    sequence: int = 0
    cut: StreamCut | None = None
    intent: Intent | None = None
    columns: str = ""
    rows: int = 0
    dead_letters: int = 0
    lost_bytes: int = 0
    commits: int = 0
    files: int = 0
    committed_ms: int = 0

    def encode(self) -> bytes:
        """Return the state as it is stored: JSON."""
        written: dict[str, object] = {name: value for name in _PLAIN if (value := getattr(self, name)) not in ("", 0)}
        written["format"] = _FORMAT
        if self.cut is not None:
            written["cut"] = cuts.to_text(self.cut)
        if self.intent is not None:
            written["intent"] = {
                "commit": self.intent.commit,
                "from": cuts.to_text(self.intent.start),
                "to": cuts.to_text(self.intent.end),
                "ingested_ms": self.intent.ingested_ms,
                "columns": self.intent.columns,
            }
        return json.dumps(written, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> JobState:
        """Return a stored state; of no bytes the state of a new job.  Raises Corrupt."""
        if not data:
            return cls()
        try:
            found: Any = json.loads(data)
            if found.pop("format") != _FORMAT:
                raise Corrupt(f"the state of a committer has another format than {_FORMAT}, which is known")
            cut, intent = found.pop("cut", None), found.pop("intent", None)
            for name, value in found.items():
                if type(value) is not _PLAIN[name]:
                    raise Invalid(f"{name} has a value of the wrong type")
            return cls(
                **found, cut=None if cut is None else _cut(cut), intent=None if intent is None else _intent(intent)
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Corrupt(f"the state of a committer is damaged: {error}") from None


_PLAIN: Final[dict[str, type]] = {
    "table_uuid": str, "stream_id": str, "chain": str, "noted": str, "columns": str, "sequence": int, "rows": int,
    "dead_letters": int, "lost_bytes": int, "commits": int, "files": int, "committed_ms": int,
}  # fmt: skip


def _intent(found: Any) -> Intent:
    commit, ingested_ms, columns = found["commit"], found["ingested_ms"], found["columns"]
    if type(commit) is not str or type(ingested_ms) is not int or type(columns) is not str or not commit:
        raise Invalid("its intent has a value of the wrong type")
    return Intent(commit, _cut(found["from"]), _cut(found["to"]), ingested_ms, columns)


def _cut(text: object) -> StreamCut:
    found = cuts.from_text(text) if isinstance(text, str) else None
    if found is None:
        raise Invalid("one of its cuts has no bounds")
    return found
