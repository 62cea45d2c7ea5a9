"""Which bytes of a segment were asked for, which came (pure).

Requests cover the bytes from the reader's place on without gaps, in order; a request is a *span*.  Catching up, two
are outstanding, so that the store works while the client parses.  A store may answer with less than was asked
(its blocks, the tail, the end): the rest is asked for again before what was asked behind it is handed out.  After a
short answer, or one at the tail, one request at a time is enough, and it parks at the store until there is data.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sarit.env.ports import Buffer

CATCHING_UP_REQUESTS: Final = 2


class Span:
    """One request: `length` bytes from `offset`; `data` once answered."""

    __slots__ = ("data", "length", "offset")

    def __init__(self, offset: int, length: int) -> None:
        self.offset = offset
        self.length = length
        self.data: Buffer | None = None

    def __repr__(self) -> str:
        return f"Span({self.offset}+{self.length}{'' if self.data is None else f', {len(self.data)} came'})"


class Spans:
    """The requests of one segment from `offset` (the next byte to hand out) to `limit` (None: no end)."""

    __slots__ = ("_asked", "_depth", "end", "limit", "offset", "read_bytes")

    def __init__(self, offset: int, limit: int | None, read_bytes: int) -> None:
        self.offset = offset
        self.limit = limit
        self.read_bytes = read_bytes
        self.end: int | None = offset if limit is not None and offset >= limit else None
        self._asked: deque[Span] = deque()
        self._depth = 1

    def __repr__(self) -> str:
        return f"Spans(at {self.offset}, end {self.end}, {list(self._asked)})"

    @property
    def finished(self) -> bool:
        """Whether everything up to the end was handed out."""
        return self.end is not None and self.offset >= self.end

    def wanted(self) -> list[Span]:
        """New requests to make now."""
        new: list[Span] = []
        bound = self.limit if self.end is None else self.end
        while len(self._asked) < self._depth:
            last = self._asked[-1] if self._asked else None
            start = self.offset if last is None else last.offset + last.length
            length = self.read_bytes if bound is None else min(self.read_bytes, bound - start)
            if length <= 0:
                break
            span = Span(start, length)
            self._asked.append(span)
            new.append(span)
        return new

    def answered(self, span: Span, data: Buffer, at_tail: bool, end_of_segment: bool) -> list[Span]:
        """An answer came; returns requests to make for what it left out."""
        if span not in self._asked:
            return []
        if len(data) > span.length:
            data = memoryview(data)[: span.length]
            at_tail = end_of_segment = False
        span.data = data
        stop = span.offset + len(data)
        self._depth = 1 if at_tail or len(data) < span.length else CATCHING_UP_REQUESTS
        if end_of_segment or stop == self.limit:
            self.ended(stop)
            return []
        missing = span.length - len(data)
        span.length = len(data)
        if not missing or span is self._asked[-1]:
            if not span.length:
                self._asked.remove(span)
            return []
        gap = Span(stop, missing)
        self._asked.insert(self._asked.index(span) + 1, gap)
        if not span.length:
            self._asked.remove(span)
        return [gap]

    def ended(self, end: int) -> None:
        """The segment (or the range) ends at `end`: nothing is to be asked behind it."""
        self.end = end
        while self._asked and self._asked[-1].offset >= end:
            self._asked.pop()

    def is_first(self, span: Span) -> bool:
        """Whether `span` is the next to be handed out (a refusal of it counts), not asked in advance."""
        return bool(self._asked) and self._asked[0] is span

    def withdrawn(self, span: Span) -> None:
        """`span` was refused; it and what was asked behind it are forgotten."""
        if span in self._asked:
            while self._asked.pop() is not span:
                pass
        self._depth = 1

    def restart(self) -> None:
        """The connection broke: forget all that is not answered, and what was asked behind it."""
        kept: deque[Span] = deque()
        for span in self._asked:
            if span.data is None:
                break
            kept.append(span)
        self._asked = kept
        self._depth = 1

    def take(self) -> list[Buffer]:
        """The bytes that came, from `offset` on without gaps; they count as handed out."""
        pieces: list[Buffer] = []
        while self._asked and (data := self._asked[0].data) is not None:
            self._asked.popleft()
            self.offset += len(data)
            pieces.append(data)
        return pieces
