"""Events made into documents: what is inside of an event, visited value by value, within bounds.  Pure.

    event ─▶ payload (of an envelope) ─▶ JSON, or what a decoder makes of it ─▶ its values ─▶ tokens, values of fields
                                     └▶ no document: one text

Nothing that an event contains raises an error: what cannot be searched is left out, counted, and named in the
document's `problem`.  An event costs at most MAX_DOCUMENT_BYTES, MAX_VISITED_VALUES and MAX_DOCUMENT_TOKENS.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.envelope import Envelope
from sarit.core.errors import Corrupt, Invalid
from sarit.search.analyzer import tokens
from sarit.search.documents import Document
from sarit.search.field_values import keyword, number, time_of
from sarit.search.limits import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_TOKENS, MAX_VISITED_VALUES
from sarit.search.mapping import Kind, Mapping
from sarit.search.query import ALL_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    # Makes a document of a payload, by the schema that its header names.  Raises Invalid.
    Decode: TypeAlias = Callable[[bytes], Any]

TOO_LONG: Final = "it is longer than what is searched of an event"
NOT_TEXT: Final = "it is not UTF-8"
DAMAGED_ENVELOPE: Final = "its envelope is damaged, or of a newer version"
NOT_DECODED: Final = "its schema is not known, or it is not of it"
TOO_MANY_VALUES: Final = "it has more values or words than are searched of an event"
OTHER_KIND: Final = "a field has a value that is not of its kind"

_NONE: Final[dict[str, Any]] = {}  # never changed
_JSON_BEGINS: Final = (b"{", b"[")


class _Node:
    """A name of a path: the names below it, and the field that ends here."""

    __slots__ = ("below", "kind", "path")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.path = ""
        self.kind: Kind | None = None

    def __repr__(self) -> str:
        return f"<_Node {self.path or '-'}, {len(self.below)} below>"

    def step(self, name: str) -> _Node | None:
        """Return the node that a name leads to: `a.b` is the way of `a`, and then of `b`."""
        found: _Node | None = self.below.get(name)
        if found is None and "." in name:
            found = self
            for part in name.split("."):
                found = found.below.get(part)
                if found is None:
                    break
        return found


class DocumentMaker:
    """Makes documents of the events of a stream.  `problems`: how many had each problem."""

    def __init__(self, mapping: Mapping, decode: Decode | None = None) -> None:
        """`decode`: makes documents of payloads; None: those that are JSON are documents."""
        self.problems: Counter[str] = Counter()
        self._time_field = mapping.time_field
        self._decode = decode
        self._root = _Node()
        for field in mapping.fields:
            node = self._root
            for name in field.path.split("."):
                node = node.below.setdefault(name, _Node())
            node.path, node.kind = field.path, field.kind

    def __repr__(self) -> str:
        return f"<DocumentMaker, {self.problems.total()} events with problems>"

    def document(self, event: bytes) -> Document:
        """Return the document of an event, with the time of its field or else of its envelope."""
        payload, envelope_ms, problem = opened(event)
        value, why = self._value(payload)
        if isinstance(value, str):
            found = tokens(value)
            if len(found) == MAX_DOCUMENT_TOKENS:
                why = why or TOO_MANY_VALUES
            # No dictionaries of its own for fields that a text does not have: most events may be texts.
            made = Document({ALL_TEXT: [found]}, _NONE, _NONE, _NONE, _NONE, envelope_ms, problem or why)
        else:
            made = Document({}, problem=problem or why)
            self._fill(made, value)
            times = made.times.get(self._time_field)
            made.time_ms = times[0] if times else envelope_ms
        if made.problem:
            self.problems[made.problem] += 1
        return made

    def _value(self, payload: bytes) -> tuple[Any, str]:
        """Return the value of a payload, which is a text if it is no document, and what is wrong with it."""
        if len(payload) > MAX_DOCUMENT_BYTES:
            return payload[:MAX_DOCUMENT_BYTES].decode(errors="replace"), TOO_LONG
        if self._decode is not None:
            try:
                return self._decode(payload), ""
            except Invalid:
                return payload.decode(errors="replace"), NOT_DECODED
        return parsed(payload)

    def _fill(self, made: Document, root: Any) -> None:
        """Add the values of a document.  Most of what a search costs is spent here."""
        all_text: list[list[str]] = []
        made.texts = {ALL_TEXT: all_text}
        values, words = MAX_VISITED_VALUES, MAX_DOCUMENT_TOKENS
        # Documents may be deeper than calls.  A name of None: an item of an array, which is where the array is.
        stack: list[tuple[Iterator[tuple[str | None, Any]], _Node | None]] = []
        members: Iterator[tuple[str | None, Any]] = iter(((None, root),))
        parent: _Node | None = self._root
        while True:
            for name, value in members:
                values -= 1
                if values < 0:
                    made.problem = made.problem or TOO_MANY_VALUES
                    return
                node = parent if name is None or parent is None else parent.step(name)
                if isinstance(value, str | int | float):
                    if not isinstance(value, bool):
                        found = tokens(value if isinstance(value, str) else str(value), words + 1)
                        words -= len(found)
                        if words < 0:
                            made.problem = made.problem or TOO_MANY_VALUES
                            del found[words:]
                            words = 0
                        all_text.append(found)
                    if node is not None and node.kind is not None and not _add(made, node.path, node.kind, value):
                        made.problem = made.problem or OTHER_KIND
                elif isinstance(value, dict):
                    stack.append((members, parent))
                    members, parent = iter(value.items()), node
                    break
                elif isinstance(value, list | tuple):
                    stack.append((members, parent))
                    members, parent = ((None, each) for each in value), node
                    break
            else:
                if not stack:
                    return
                members, parent = stack.pop()


def opened(event: bytes) -> tuple[bytes, int | None, str]:
    """Return the payload of an event, the time of its envelope in milliseconds, and what is wrong with that."""
    if not Envelope.is_envelope(event):
        return event, None, ""
    try:
        envelope = Envelope.parse(event)
    except (Invalid, Corrupt):
        return event, None, DAMAGED_ENVELOPE
    return envelope.payload, None if envelope.event_time is None else envelope.event_time // 1000, ""


def parsed(payload: bytes) -> tuple[Any, str]:
    """Return the document in JSON that a payload is, or else its text, and what is wrong with that."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.decode(errors="replace"), NOT_TEXT
    if payload.lstrip()[:1] in _JSON_BEGINS:
        try:
            return parse_json(text), ""
        except ValueError:
            return text, ""
    return text, ""


def _add(made: Document, path: str, kind: Kind, value: str | int | float) -> bool:
    """Add the value of a field.  Returns whether it is of the field's kind."""
    if kind is Kind.KEYWORD:
        _append(made.keywords, path, keyword(value if isinstance(value, str) else _text(value)))
    elif kind is Kind.TEXT:
        # The last text of all is that of this value, unless it is true or false.
        _append(made.texts, path, tokens(_text(value)) if isinstance(value, bool) else made.texts[ALL_TEXT][-1])
    elif kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            return False
        _append(made.booleans, path, value)
    elif isinstance(value, bool):
        return False
    elif kind is Kind.NUMBER:
        if isinstance(value, str) or (found := number(value)) is None:
            return False
        _append(made.numbers, path, found)
    else:
        time = time_of(value)
        if time is None:
            return False
        _append(made.times, path, time)
    return True


def _append(values: Any, path: str, value: Any) -> None:
    if path in values:
        values[path].append(value)
    else:
        values[path] = [value]


def _text(value: str | int | float) -> str:
    """Return a value as the text that JSON has for it."""
    if isinstance(value, str):
        return value
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


__all__ = ["DocumentMaker", "opened", "parsed"]
