"""Schemas of events from the registry that the process itself keeps, without HTTP, for readers on worker threads."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.core.errors import Invalid, Unavailable
from sarit.core.properties import PRAVEGA
from sarit.process.limits import OWN_REGISTRY_SECONDS
from sarit.registry.access import Operation
from sarit.registry.errors import Missing, NotThere
from sarit.registry.values import LATEST, PROTOBUF_FORMAT, GroupName
from sarit.schemas.definitions import Kind
from sarit.serializers.event_documents import descriptor_files
from sarit.serializers.limits import MAX_CACHED_SCHEMAS
from sarit.serializers.recent_values import RecentValues
from sarit.serializers.schema import PROTOBUF
from sarit.serializers.schema_source import UnusableSchema, WrittenSchema, written_schema

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from sarit.controller.ports import Tables
    from sarit.env.ports import Env
    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.values import Schema
    from sarit.security.permissions import Caller

T = TypeVar("T")


class RegistrySchemas:
    """The schemas of a registry of this process, in the default namespace: a `SchemaSource`.

    Calls block, so they are made on any thread but that of the event loop.  Raises what the protocol raises."""

    def __init__(self, registry: Registry, guard: Guard | None = None, caller: Caller | None = None) -> None:
        """Call it on the registry's event loop.  `guard`: checks each call for `caller`; None: with all rights."""
        self._registry = registry
        self._guard = guard
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._written = RecentValues[tuple[str, int], WrittenSchema](MAX_CACHED_SCHEMAS)

    def __repr__(self) -> str:
        return f"<RegistrySchemas of {self._registry!r}>"

    async def close(self) -> None:
        """End the worker of the registry."""
        await self._registry.close()

    def written(self, subject: str, number: int, header: str) -> WrittenSchema:
        """Return the schema of an id, or of an encoding of a group."""
        group = subject if header == PRAVEGA else ""
        found = self._written.get((group, number))
        if found is None:
            found = self._wait(self._encoding(group, number) if header == PRAVEGA else self._schema(number))
            self._written.put((group, number), found)
        return found

    def version(self, subject: str, version: int | None) -> WrittenSchema:
        """Return a version of a subject, also one that is deleted softly; None: the latest one."""
        return self._wait(self._version(subject, version))

    async def _schema(self, number: int) -> WrittenSchema:
        found = await self._registry.schema(number)
        if self._guard is not None:
            holders = await self._registry.holders(number, deleted=True)
            if not self._guard.sees_schema(self._caller, holders):
                raise NotThere(Missing.SCHEMA, f"schema {number} does not exist, or you may not read it")
        return await self._usable(found)

    async def _encoding(self, group: str, number: int) -> WrittenSchema:
        name = self._checked(group, Operation.SHOW_ENCODING)
        found = await self._registry.encodings.get(name, number)
        version = await self._registry.version(name, found.version, deleted=True)
        return await self._usable(version.schema, found.codec, version.version.type)

    async def _version(self, subject: str, version: int | None) -> WrittenSchema:
        name = self._checked(subject, Operation.SHOW)
        number = LATEST if version is None else version
        found = await self._registry.version(name, number, deleted=version is not None)
        usable = await self._usable(found.schema, message=found.version.type)
        return usable._replace(version=found.version.number)

    async def _usable(self, schema: Schema, codec: str = "", message: str = "") -> WrittenSchema:
        texts = await self._registry.texts(schema)
        size = len(schema.text) + sum(map(len, texts.values()))
        return await self._registry.compute(lambda: _written(schema, texts, codec, message), size)

    def _checked(self, group: str, operation: Operation) -> GroupName:
        name = GroupName("", group)
        if self._guard is not None:
            self._guard.check(self._caller, operation, name)
        return name

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        if threading.get_ident() == self._thread:
            call.close()
            raise AssertionError("the registry is asked on the thread of its own event loop, which would wait for ever")
        try:
            asked = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:  # the loop is closed
            call.close()
            raise Unavailable("the process is stopping") from None
        try:
            return asked.result(OWN_REGISTRY_SECONDS)
        except TimeoutError:
            asked.cancel()
            raise Unavailable(f"the registry of this process has not answered for {OWN_REGISTRY_SECONDS:g} s") from None


def read_registry(tables: Tables, env: Env) -> RegistrySchemas:
    """Return a reader of the registry in some tables, which need not have one.  Close it.  Call it on the event loop.

    A process reads its installation's schemas so whether or not it answers requests for them."""
    from sarit.registry.registry import Registry

    return RegistrySchemas(Registry(tables, env))


def _written(schema: Schema, texts: Mapping[str, str], codec: str, message: str) -> WrittenSchema:
    if schema.kind is not Kind.OPAQUE or schema.format_name != PROTOBUF_FORMAT:
        return written_schema(schema.kind.value, schema.text, texts, codec, message)
    try:
        text, others = descriptor_files(schema.text, message)
    except Invalid as error:
        raise UnusableSchema(str(error)) from None
    return written_schema(PROTOBUF, text, others, codec, message)


__all__ = ["RegistrySchemas", "read_registry"]
