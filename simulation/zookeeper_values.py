"""What the simulated ZooKeeper and its client both know: nodes, changes, requests and their answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

ANY_VERSION: Final = -1


class Stat(NamedTuple):
    """What kazoo says of a node."""

    czxid: int
    version: int


class Change(NamedTuple):
    """A change that the leader has decided.  `kind`: create, set or delete."""

    number: int
    kind: str
    path: str
    value: bytes = b""
    session: int = 0


@dataclass(slots=True)
class Node:
    """One node."""

    value: bytes
    created: int
    session: int = 0
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)
    given: int = 0  # numbers that sequential children got


class Tree:
    """The nodes that one server has."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0)}

    def apply(self, change: Change) -> None:
        """Make a change."""
        parent, _, name = change.path.rpartition("/")
        if change.kind == "create":
            self.nodes[change.path] = Node(change.value, change.number, change.session)
            self.nodes[parent or "/"].children[name] = None
        elif change.kind == "set":
            node = self.nodes[change.path]
            node.value, node.version = change.value, node.version + 1
        else:
            del self.nodes[change.path]
            del self.nodes[parent or "/"].children[name]


class Answer:
    """A result of kazoo."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._done = False
        self._links: list[Callable[[Answer], None]] = []

    def rawlink(self, call: Callable[[Answer], None]) -> None:
        """Call with this result once it is there."""
        if self._done:
            call(self)
        else:
            self._links.append(call)

    def set(self, value: Any, error: Exception | None) -> None:
        """It is there."""
        if self._done:
            return
        self.value, self.exception, self._done = value, error, True
        for call in self._links:
            call(self)


@dataclass(slots=True, eq=False)
class Request:
    """One call of a client."""

    kind: str
    path: str
    answer: Answer
    value: bytes = b""
    version: int = ANY_VERSION
    flags: frozenset[str] = frozenset()
    watch: Callable[[Any], None] | None = None
    sent_at: float = 0.0
