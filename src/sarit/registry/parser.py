"""Parses and compares schemas on a thread of its own, since that may take seconds and the event loop serves appends.

The thread begins with the first schema: a registry that is not used has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sarit.core.errors import Invalid, Unavailable
from sarit.registry import records
from sarit.registry.errors import BadSchema, Full
from sarit.registry.limits import (
    CACHED_DEFINITION_BYTES,
    CACHED_VALUE_SHARE_BYTES,
    MAX_COMPARISON_SECONDS,
    MAX_TYPE_CHARACTERS,
    MAX_WAITING_FOR_PARSER,
    MAX_WAITING_PARSER_BYTES,
)
from sarit.registry.names import check_text
from sarit.registry.values import Schema
from sarit.schemas.compatibility import refusals
from sarit.schemas.definitions import Kind, incompatibilities, parse_definition
from sarit.schemas.limits import MAX_INCOMPATIBILITIES, MAX_SCHEMA_BYTES
from sarit.schemas.schema_text import shown
from sarit.serializers.recent_values import RecentValues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sarit.env.ports import Clock, Env, Worker
    from sarit.registry.values import NewSchema
    from sarit.schemas.compatibility import Policy
    from sarit.schemas.definitions import Definition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema that was parsed.  `schema`: as it would be stored, with the id 0.  `type`: as the user named it, or else
    that of the text."""

    schema: Schema
    type: str
    definition: Definition
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Compared:
    """A version to compare with, by a policy for it alone.  `texts`: of the references of its schema."""

    number: int
    policy: Policy
    schema: Schema
    texts: Mapping[str, str]


class Parser:
    """The thread, and the schemas that it parsed last."""

    def __init__(self, env: Env) -> None:
        self._threads = env.threads
        self._clock = env.clock
        self._worker: Worker | None = None
        self._closed = False
        self._waiting = 0
        self._bytes = 0
        self._definitions: RecentValues[int, Definition] = RecentValues(
            CACHED_DEFINITION_BYTES, CACHED_VALUE_SHARE_BYTES
        )

    def __repr__(self) -> str:
        return f"<Parser, {self._waiting} requests wait, {self._definitions!r}>"

    async def close(self) -> None:
        """End the thread."""
        self._closed = True
        if self._worker is not None:
            await self._worker.close()

    async def parse(self, new: NewSchema, texts: Mapping[str, str], namespace: str) -> Parsed:
        """Parse a schema that refers to others with these texts, in groups of a namespace.

        Raises BadSchema, Unavailable (too many requests wait)."""
        return await self.run(partial(_parse, new, texts, namespace), len(new.text))

    async def reasons(self, new: Definition, with_these: Sequence[Compared], deadline: float) -> list[str]:
        """Return why the policies of versions refuse a schema.  `deadline`: of `comparison_deadline`.

        Raises Full (the deadline has passed), Unavailable."""
        known = {one.schema.id: self._definitions.get(one.schema.id) for one in with_these}
        size = sum(len(one.schema.text) for one in with_these if known[one.schema.id] is None)
        found, parsed = await self.run(partial(_compare, new, with_these, known, self._clock, deadline), size)
        for id, definition in parsed.items():
            self._definitions.put(id, definition, len(definition.text))
        return found

    def comparison_deadline(self) -> float:
        """Return when a comparison that begins now must have ended, by the monotonic clock."""
        return self._clock.monotonic() + MAX_COMPARISON_SECONDS

    async def run(self, call: Callable[[], T], size: int) -> T:
        """Return what `call`, a pure function of texts of `size` bytes, returns on the thread.  Raises Unavailable."""
        if self._closed:
            raise Unavailable("the registry is being closed; try another controller")
        if self._waiting >= MAX_WAITING_FOR_PARSER or self._bytes + size > MAX_WAITING_PARSER_BYTES:
            raise Unavailable("too many schemas wait to be parsed or compared; try again")
        if self._worker is None:
            self._worker = self._threads.worker("registry")
        self._waiting += 1
        self._bytes += size
        try:
            return await self._worker.run(call)
        finally:
            self._waiting -= 1
            self._bytes -= size


def _parse(new: NewSchema, texts: Mapping[str, str], namespace: str) -> Parsed:
    try:
        definition = parse_definition(new.kind, new.text, texts)
    except Invalid as error:
        raise BadSchema(str(error)) from None
    if len(definition.text) > MAX_SCHEMA_BYTES:
        raise BadSchema(f"the normal form of the schema has more than {MAX_SCHEMA_BYTES:,} bytes")
    of_text = definition.type_name
    # Any message of a Protobuf file may be the type that is meant.
    if new.type and of_text and new.type != of_text and new.kind is not Kind.PROTOBUF:
        raise BadSchema(f"the schema defines {shown(of_text)}, not {shown(new.type)}")
    try:
        check_text(of_text, "type", MAX_TYPE_CHARACTERS, may_be_empty=True)
    except Invalid as error:
        raise BadSchema(str(error)) from None
    schema = Schema(
        0, new.kind, definition.text, tuple(new.references), of_text, new.format_name,
        namespace if new.references else "",
    )  # fmt: skip
    return Parsed(schema, new.type or of_text, definition, records.fingerprint(schema))


def _compare(
    new: Definition, versions: Sequence[Compared], known: Mapping[int, Definition | None], clock: Clock, deadline: float
) -> tuple[list[str], dict[int, Definition]]:  # fmt: skip
    """Return the reasons and the definitions that were parsed, by schema id."""
    found: list[str] = []
    parsed: dict[int, Definition] = {}
    for one in versions:
        if clock.monotonic() > deadline:
            raise Full(
                f"the comparison with the versions of the group was stopped after {MAX_COMPARISON_SECONDS:.0f} s, at "
                f"version {one.number}: use a policy that compares with fewer, or delete versions"
            )
        id = one.schema.id
        try:
            old = known[id] or parsed.get(id)
            if old is None:
                old = parsed[id] = parse_definition(one.schema.kind, one.schema.text, one.texts)
            found += refusals(one.policy, new, [(one.number, old)], _incompatibilities)
        except Invalid as error:  # what cannot be compared is not compatible
            found.append(f"version {one.number} cannot be compared: {error}")
        if len(found) >= MAX_INCOMPATIBILITIES:
            break
    return found[:MAX_INCOMPATIBILITIES], parsed


def _incompatibilities(reader: Definition, writer: Definition) -> list[str]:
    if reader.kind is writer.kind is Kind.OPAQUE and reader.text != writer.text:
        return ["an opaque schema is compatible with itself alone"]
    return incompatibilities(reader, writer)
