"""Whether the output of a chain of jobs ever shows a part of what one task wrote.  Pure.

Each line names its micro-batch, its task, and how many lines that task wrote (`examples/pipelines/chain.py`).  A reader
polls the segments of the output one after another.  Wrong are:

* a task's lines in one segment that do not come at once: after a poll that showed some, another one shows more, or they
  do not stand together;
* a micro-batch that shows lines before one that is older than it is whole;
* lines of a micro-batch that are older than lines before them in their segment;
* in the end, a task with more or fewer lines than it wrote.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Line = Mapping[str, Any]

Part = tuple[int, int]  # micro-batch, task


@dataclass
class WholeBatches:
    """What a reader has seen so far, and what was wrong with it."""

    wrong: list[str] = field(default_factory=list)
    seen: Counter[Part] = field(default_factory=Counter)
    stated: dict[Part, int] = field(default_factory=dict)
    _last: dict[int, Part] = field(default_factory=dict)  # of each segment
    _reported: set[int] = field(default_factory=set)
    _waiting: set[int] = field(default_factory=set)  # micro-batches that must be whole at the end of the next round

    def poll(self, segment: int, lines: Iterable[Line]) -> None:
        """The lines that one poll of one segment showed, in order."""
        first = True
        for line in lines:
            part = line["batch"], line["task"]
            last = self._last.get(segment)
            self.stated.setdefault(part, line["lines"])
            if self.stated[part] != line["lines"]:
                self.wrong.append(f"{part} wrote {self.stated[part]} lines, and says {line['lines']} later")
            if last is not None and part[0] < last[0]:
                self.wrong.append(f"segment {segment}: {part} comes after {last}")
            if last == part and first:
                self.wrong.append(f"segment {segment}: lines of {part} appeared one after another")
            first = False
            self._last[segment] = part
            self.seen[part] += 1

    def end_round(self) -> None:
        """All segments were polled once since the last call.

        A micro-batch that is seen in this round comes after older ones.  So these are whole in the next round, which
        polls every segment after that."""
        newest = max((batch for batch, _ in self.seen), default=0)
        for batch in sorted(self._waiting):
            if missing := self.missing(batch):
                self.wrong.append(f"micro-batch {batch} was not whole when a newer one was visible: {missing}")
                self._reported.add(batch)
        self._waiting = {batch for batch, _ in self.seen if batch < newest and self.missing(batch)} - self._reported

    def missing(self, batch: int) -> dict[Part, int]:
        """The lines that are missing of a micro-batch, by task; negative: there are too many."""
        stated = {part: lines for part, lines in self.stated.items() if part[0] == batch}
        return {part: lines - self.seen[part] for part, lines in stated.items() if lines != self.seen[part]}

    def end(self) -> list[str]:
        """The output is complete: all that was wrong."""
        incomplete: dict[int, dict[Part, int]] = defaultdict(dict)
        for part, lines in self.stated.items():
            if lines != self.seen[part]:
                incomplete[part[0]][part] = lines - self.seen[part]
        return self.wrong + [f"micro-batch {batch} is not whole: {missing}" for batch, missing in incomplete.items()]
