"""An event as a document: the tokens and values of its fields, as a mapping names them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping as Dict
    from collections.abc import Sequence


@dataclass(slots=True)
class Document:
    """The searched parts of one event.

    `texts`: of each text field the tokens of each of its values; of ALL_TEXT those of all strings of the event, or of
    the event itself if it is no document.  `keywords`, `numbers`, `times`, `booleans`: values by field.
    `time_ms`: when the event happened, since 1970; None: only when it was appended is known.  `problem`: why a part of
    the event is not searched; "": all of it is."""

    texts: Dict[str, Sequence[Sequence[str]]]
    keywords: Dict[str, Sequence[str]] = field(default_factory=dict)
    numbers: Dict[str, Sequence[float]] = field(default_factory=dict)
    times: Dict[str, Sequence[int]] = field(default_factory=dict)
    booleans: Dict[str, Sequence[bool]] = field(default_factory=dict)
    time_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event is: the packed id of its segment, and the offset at which its header begins."""

    segment: int
    offset: int
