"""The progress of a stream's index, for people and programs that list its job: the state of the job as texts by name.

The server that lists a job turns its state into texts, which commands and the console read.  So a client needs no
knowledge of the format of states, and one of another version shows what it knows.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sarit.core import cuts
from sarit.core.job_texts import cut_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.cuts import StreamCut
    from sarit.search.state import IndexState

_NUMBERS: Final = ("events", "shards", "bytes", "committed_ms", "lost_bytes", "partly")


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far a stream's index is.

    `events`: of all its shards ever.  `shards`, `bytes`: of what there is now.  `committed_ms`: when events were last
    added, since 1970; 0: never.  `lost_bytes`: truncated before they were read.  `partly`: events of which a part is
    not searched.  `cut`: everything before it is in the index; None: nothing is, or it is not known here."""

    events: int = 0
    shards: int = 0
    bytes: int = 0
    committed_ms: int = 0
    lost_bytes: int = 0
    partly: int = 0
    cut: StreamCut | None = None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> IndexProgress:
        """Return the progress that the texts of a job have; what is missing or damaged is not known."""
        return cls(**numbers_of(texts, _NUMBERS), cut=cut_of(texts))


def texts_of(state: IndexState, shards: int) -> dict[str, str]:
    """Return the state of an index as texts; `shards`: how many there are."""
    texts = {
        "events": str(state.events), "shards": str(shards), "bytes": str(state.stored_bytes),
        "committed-ms": str(state.committed_ms), "lost-bytes": str(state.lost_bytes), "partly": str(state.partly),
    }  # fmt: skip
    if state.cut is not None:
        texts["cut"] = cuts.to_text(state.cut)
    return texts
