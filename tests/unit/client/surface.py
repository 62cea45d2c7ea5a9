"""The public surface of both clients, found by introspection: a test over it covers what is added later, too.

`CLASSES` are the classes whose methods users call, `methods` lists what they may call, `instances` makes one blocking
object of each class on a node; the asyncio object of each is its `_inner`.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from tools.blocking_manifest import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.client.blocking.client import Client

FACADES = {facade.name: facade for module in MODULES for facade in module.facades}
ASYNCIO = {name: getattr(importlib.import_module(facade.source), name) for name, facade in FACADES.items()}
BLOCKING = {
    facade.name: getattr(importlib.import_module(f"sarit.client.blocking.{module.name}"), facade.name)
    for module in MODULES
    for facade in module.facades
}
FACES = {"asyncio": ASYNCIO, "blocking": BLOCKING}


def methods(face: str, name: str) -> list[str]:
    """What users may call of a class: its public methods (no properties), and iteration."""
    hidden = FACADES[name].hidden
    return [
        method
        for method, function in vars(FACES[face][name]).items()
        if inspect.isfunction(function)
        and (method in ("__aiter__", "__iter__", "__call__") or not method.startswith("_"))
        and method not in hidden
    ]


def surface() -> Iterator[tuple[str, str, str]]:
    """(face, class, method) of everything that users may call."""
    for face, classes in FACES.items():
        for name in classes:
            for method in methods(face, name):
                yield face, name, method


def arguments(face: str, name: str, method: str) -> list[str]:
    """The arguments of a method that are of a stated type; not those of a type that a serializer states."""
    found = inspect.signature(getattr(FACES[face][name], method)).parameters.values()
    return [
        one.name
        for one in found
        if one.name != "self" and one.annotation not in ("Any", "object", "V") and one.kind is not one.VAR_POSITIONAL
    ]


def instances(client: Client, scope: str) -> dict[str, Any]:
    """One object of each class, in a new scope."""
    client.create_scope(scope)
    for stream in ("t", "bytes", "entries"):
        client.create_stream(f"{scope}/{stream}")
    client.tables.create(f"{scope}/table", primary_key_bytes=1)
    with client.writer(f"{scope}/t") as writer:
        writer.write("an event")
    stream, coordination = client.stream(f"{scope}/t"), client.coordination
    group = client.reader_groups.create(f"{scope}/group", f"{scope}/t")
    transactional = client.transactional_writer(f"{scope}/t")
    made = [
        client,
        client.writer(f"{scope}/t"),
        client.reader(f"{scope}/t"),
        client.byte_writer(f"{scope}/bytes"),
        client.byte_reader(f"{scope}/bytes"),
        stream,
        stream.batch(),
        stream.time_windows(),
        client.tables,
        client.table(f"{scope}/table"),
        transactional,
        transactional.begin(),
        coordination,
        coordination.revisioned(f"{scope}/entries"),
        coordination.synchronizer(f"{scope}/shared", bytes, lambda state, update, _: state + update),
        coordination.membership(f"{scope}/members"),
        coordination.leader_election(f"{scope}/candidates"),
        coordination.shared_configuration(f"{scope}/settings"),
        group.reader("reader"),
        group,
        client.structures,
        client.structures.counter(f"{scope}/counter"),
        client.structures.map(f"{scope}/map"),
        client.structures.set(f"{scope}/set"),
        client.structures.list(f"{scope}/list"),
        client.structures.queue(f"{scope}/queue"),
        client.links,
        client.continuous,
        client.search,
        client.reader_groups,
    ]
    named = {type(one).__name__: one for one in made}
    assert set(named) == set(FACADES), "make one of each class"
    return named
