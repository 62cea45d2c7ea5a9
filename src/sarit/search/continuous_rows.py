"""Rows of continuous queries: what their users want, and from when on it holds.  Pure.

    q/STREAM ID/NAME   a query       m/STREAM ID   the fields that the queries of a stream know
                                     c/STREAM ID   gets a new version together with every change of these rows

A user changes what is *wanted*.  The job of the stream *adopts* it when it begins a batch: only then does a new query
hold, a changed one hold in its new form, or is a deleted one gone; `holds_from` is the cut at which that batch began.
A query whose matches cannot be written, or whose maker may not do so any more, is *suspended*: `problem` says why.  It
holds for no event until it is adopted again, from a new cut.  Format: docs/formats/continuous-queries.md.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sarit.core import cuts
from sarit.core.errors import Conflict, Corrupt, Invalid, SaritError
from sarit.core.names import StreamName, is_user_name
from sarit.core.texts import cut_text
from sarit.search.limits import (
    MAX_CONTINUOUS_NAME_CHARACTERS,
    MAX_CONTINUOUS_PROBLEM_CHARACTERS,
    MAX_CONTINUOUS_ROLES,
    MAX_CONTINUOUS_ROW_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.core.cuts import StreamCut
    from sarit.search.ports import RowChange, Rows

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Maker:
    """The user who made a query, with the roles that the user had then.  Without a name: this installation had no
    users."""

    name: str = ""
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Definition:
    """The choices of a user for a query: its text, the stream that gets its matches, and whether with their events."""

    text: str
    output: StreamName
    with_event: bool = False
    maker: Maker = Maker()


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A continuous query as it is stored.

    `id`: drawn at its creation.  `wanted`: None: it is to be deleted.  `adopted`: what the job asks events about; None:
    nothing yet.  `holds_from`: since this cut; None: it holds for no event now.  `problem`: why it does not hold;
    empty: nothing is wrong.  `created_ms`: since 1970."""

    name: str
    id: str
    stream: StreamName
    wanted: Definition | None
    adopted: Definition | None = None
    holds_from: StreamCut | None = None
    problem: str = ""
    created_ms: int = 0

    @property
    def is_pending(self) -> bool:
        """Whether the job has not adopted what its user wants."""
        return self.wanted != self.adopted

    @property
    def state(self) -> str:
        """`deleting`, `failed`, `pending` or `active`."""
        if self.wanted is None:
            return "deleting"
        if self.problem:
            return "failed"
        return "pending" if self.is_pending else "active"

    def adopt(self, cut: StreamCut) -> ContinuousQuery:
        """Return the query as it holds from a cut on."""
        return replace(self, adopted=self.wanted, holds_from=cut, problem="")

    def suspend(self, problem: str) -> ContinuousQuery:
        """Return the query as it holds for no event, and why."""
        shown = cut_text(problem, MAX_CONTINUOUS_PROBLEM_CHARACTERS)
        return replace(self, adopted=self.wanted, holds_from=None, problem=shown)


def check_name(name: str) -> str:
    """Return the name of a query.  Raises Invalid."""
    if len(name) > MAX_CONTINUOUS_NAME_CHARACTERS or not is_user_name(name):
        raise Invalid(
            f"{cut_text(name, MAX_CONTINUOUS_NAME_CHARACTERS)!a} is no name of a continuous query: use letters, "
            f"digits, '.' and '-', at most {MAX_CONTINUOUS_NAME_CHARACTERS}"
        )
    return name


def query_key(stream_id: str, name: str) -> bytes:
    """Return the key of a query's row; of no name the beginning of the keys of all queries of a stream."""
    return f"q/{stream_id}/{name}".encode()


def mapping_key(stream_id: str) -> bytes:
    """Return the key of the row with the fields that the queries of a stream know."""
    return f"m/{stream_id}".encode()


def changes_key(stream_id: str) -> bytes:
    """Return the key of the row that is written together with every change of the others of a stream."""
    return f"c/{stream_id}".encode()


def stream_id_of(key: bytes) -> str:
    """Return the id of the stream in a key of any kind."""
    return key.decode(errors="replace").split("/")[1]


async def write_rows(rows: Rows, stream: StreamName, stream_id: str, changes: Sequence[RowChange]) -> list[int]:
    """Change rows of the queries of a stream, or of their fields: all of them, or none.  Nothing else changes them.

    The job of the stream reads them again only if the row of `changes_key` has another version, so that one is written
    in the same step.  Returns the new versions; of a removal -1.  Raises Conflict, Unavailable."""
    return await rows.put_all(changes, (changes_key(stream_id), str(stream).encode()))


async def delete_dead_queries(rows: Rows, has_id: Callable[[StreamName, str], Awaitable[bool]]) -> int:
    """Delete the rows of the queries of deleted streams.  Returns how many queries.  Raises Unavailable.

    `has_id`: returns whether a stream is the one with a creation id."""
    alive: dict[str, bool] = {}
    deleted = 0
    for key, value, version in await rows.scan(b"q/"):
        stream_id = stream_id_of(key)
        if stream_id not in alive:
            try:
                alive[stream_id] = await has_id(decode_query(value).stream, stream_id)
            except Corrupt:  # the row may be of a newer version
                continue
        if not alive[stream_id]:
            with suppress(Conflict):  # another controller has deleted it
                await rows.put(key, None, version)
                deleted += 1
    for key, value, _ in await rows.scan(b"c/"):  # also of streams whose queries were all deleted before
        if (stream_id := stream_id_of(key)) not in alive:
            alive[stream_id] = await has_id(StreamName.parse(value.decode()), stream_id)
    for prefix in (b"m/", b"c/"):
        for key, _, version in await rows.scan(prefix):
            if alive.get(stream_id_of(key)) is False:
                with suppress(Conflict):
                    await rows.put(key, None, version)
    return deleted


def encode_query(query: ContinuousQuery) -> bytes:
    """Return a query as its row has it.  Raises Invalid: it is too long."""
    written: dict[str, Any] = {
        "format": _FORMAT, "name": query.name, "id": query.id, "stream": str(query.stream), "created": query.created_ms,
    }  # fmt: skip
    if query.wanted is not None:
        written["wanted"] = _written(query.wanted)
    if query.adopted is not None:
        written["adopted"] = True if query.adopted == query.wanted else _written(query.adopted)
    if query.holds_from is not None:
        written["from"] = cuts.to_text(query.holds_from)
    if query.problem:
        written["problem"] = query.problem
    data = json.dumps(written, ensure_ascii=False, sort_keys=True).encode()
    if len(data) > MAX_CONTINUOUS_ROW_BYTES:
        raise Invalid(f"continuous query {query.name} takes {len(data)} bytes; {MAX_CONTINUOUS_ROW_BYTES} are allowed")
    return data


def _written(definition: Definition) -> dict[str, Any]:
    maker = definition.maker
    return {
        "text": definition.text,
        "output": str(definition.output),
        **({"event": True} if definition.with_event else {}),
        **({"maker": maker.name, "roles": sorted(maker.roles)[:MAX_CONTINUOUS_ROLES]} if maker.name else {}),
    }


def decode_query(data: bytes) -> ContinuousQuery:
    """Return the query of a row.  Raises Corrupt."""
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise Corrupt(f"a continuous query has another format than {_FORMAT}, which is known: update this server")
        wanted = _definition(found["wanted"]) if "wanted" in found else None
        adopted = found.get("adopted")
        return ContinuousQuery(
            _text(found["name"]),
            _text(found["id"]),
            StreamName.parse(found["stream"]),
            wanted,
            wanted if adopted is True else None if adopted is None else _definition(adopted),
            cuts.from_text(found["from"]) if "from" in found else None,
            _text(found.get("problem", "")),
            int(found["created"]),
        )
    except Corrupt:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SaritError) as error:
        raise Corrupt(f"the row of a continuous query is damaged: {type(error).__name__}: {error}") from None


def _definition(found: dict[str, Any]) -> Definition:
    maker = Maker(_text(found["maker"]), frozenset(map(_text, found["roles"]))) if "maker" in found else Maker()
    output = StreamName.parse(_text(found["output"]))
    return Definition(_text(found["text"]), output, with_event=found.get("event") is True, maker=maker)


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise Invalid("a value has the wrong type")
    return found
