"""What users see of the client beside its work: names, types, help, representations, tracebacks, warnings."""

from __future__ import annotations

import ast
import asyncio
import builtins
import copy
import dataclasses
import enum
import gc
import importlib
import inspect
import logging
import pickle
import pydoc
import subprocess
import sys
import traceback
import warnings

import pytest

import sarit
from sarit import aio, serializers
from tests.nodes import RunningNode
from tests.unit.client.surface import FACADES, FACES, instances

REFUSED = "127.0.0.1:1"
# Of the standard library, of Arrow, and type variables.
OF_OTHERS = {
    *("Any", "AsyncIterator", "Callable", "Iterable", "Iterator", "Mapping", "Never", "Sequence", "UUID"),
    *("pa", "ssl", "S", "Self", "V", "W", "datetime"),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("public") / "node") as running:
        yield running


# -- names ---------------------------------------------------------------------------------------


def named(annotation: object) -> set[str]:
    """The names in an annotation that are neither built in nor of others."""
    found = set()
    for node in ast.walk(ast.parse(getattr(annotation, "__forward_arg__", annotation))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= named(node.value)
    return {name for name in found if not hasattr(builtins, name)} - OF_OTHERS


def annotated(cls: type, hidden: set[str]) -> dict[str, object]:
    """`member argument` -> annotation, of the public methods, properties and fields of a class."""
    found = {}
    if dataclasses.is_dataclass(cls) or hasattr(cls, "_fields"):
        found |= {f"{name}": note for name, note in cls.__annotations__.items() if not name.startswith("_")}
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not inspect.isfunction(function) or name in hidden:
            continue
        if name.startswith("_") and name not in ("__iter__", "__aiter__", "__enter__", "__aenter__"):
            continue
        function = inspect.unwrap(function)
        parameters = inspect.signature(function).parameters
        unnoted = [one for one in list(parameters)[1:] if one not in function.__annotations__]
        if not isinstance(member, (staticmethod, classmethod)):
            assert not unnoted, f"{cls.__name__}.{name} has no annotation of {unnoted}"
        assert "return" in function.__annotations__, f"{cls.__name__}.{name} has no annotation of what it returns"
        found |= {f"{name} {argument}": note for argument, note in function.__annotations__.items()}
    return found


def unexported(face: str) -> list[str]:
    exported = set(sarit.__all__) | (set(aio.__all__) if face == "asyncio" else set())
    exported |= set(serializers.__all__)
    values = [value for value in (getattr(sarit, name) for name in sarit.__all__) if inspect.isclass(value)]
    checked = {**{cls.__name__: cls for cls in values}, **FACES[face]}
    missing = []
    for name, cls in checked.items():
        if issubclass(cls, enum.Enum):
            continue
        hidden = set(FACADES[name].hidden) if name in FACADES else set()
        for where, annotation in annotated(cls, hidden).items():
            missing += [f"{name}.{where}: {one}" for one in named(annotation) if one not in exported]
    for connect in (sarit.connect, aio.connect):
        names = {one for note in connect.__annotations__.values() for one in named(note)}
        missing += [f"connect: {one}" for one in names - {*exported, *aio.__all__}]
    return missing


@pytest.mark.parametrize("face", FACES)
def test_every_type_in_a_public_signature_is_exported(face) -> None:
    """`Client.stream_info` returned a class that no user could name."""
    assert not unexported(face)


def test_types_of_aliases_are_exported() -> None:
    for name in ("Cut", "CutLike", "Change", "Key", "Credentials"):
        members = [one for one in getattr(sarit, name).__args__ if getattr(one, "__module__", "") == "sarit"]
        assert {one.__name__ for one in members} <= set(sarit.__all__), name


def test_public_classes_say_that_they_are_of_sarit() -> None:
    classes = {name: getattr(sarit, name) for name in sarit.__all__ if inspect.isclass(getattr(sarit, name))}
    assert {name for name, cls in classes.items() if cls.__module__ != "sarit"} == set()
    assert {name for name in aio.__all__ if name != "connect" and getattr(aio, name).__module__ != "sarit.aio"} == set()
    assert all(cls.__name__ == name for name, cls in classes.items())


def test_every_class_of_the_client_is_exported() -> None:
    assert set(FACADES) <= set(sarit.__all__)
    assert set(FACADES) <= set(aio.__all__)
    assert all(getattr(sarit, name) is FACES["blocking"][name] for name in FACADES)
    assert all(getattr(aio, name) is FACES["asyncio"][name] for name in FACADES)


def test_names_of_the_package_are_those_that_it_exports() -> None:
    assert dir(sarit) == sarit.__all__ == sorted(sarit.__all__)
    assert dir(aio) == aio.__all__
    assert sarit.aio is aio is importlib.import_module("sarit.aio")
    assert aio.connect is importlib.import_module("sarit.client.aio").connect
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sarit.nothing


def test_version_is_that_of_the_distribution() -> None:
    assert sarit.__version__ == importlib.metadata.version("sarit")


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, sarit; print([name for name in sys.modules if name.startswith(('sarit.', 'asyncio', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_shows_the_groups_of_calls_and_no_internals() -> None:
    text = pydoc.render_doc(sarit.Client, renderer=pydoc.plaintext)
    for wanted in ("reader_groups", "tables", "coordination", "create_scope(self, scope: ", "module sarit"):
        assert wanted in text, wanted
    for internal in ("_inner", "session", "LoopThread.", "_run"):
        assert internal not in text.partition("__init__")[0], internal
    for name in FACADES:
        assert pydoc.render_doc(getattr(sarit, name), renderer=pydoc.plaintext)


# -- objects -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(node):
    """One blocking object of each class, on an open client."""
    with sarit.connect(node.controller) as client:
        yield instances(client, "public")


def test_objects_list_public_names_alone(made) -> None:
    for one in made.values():
        assert [name for name in dir(one) if name.startswith("_") and not name.endswith("__")] == []
    assert {"tables", "reader_groups", "coordination", "create_scope"} <= set(dir(made["Client"]))


STATES = {
    "Client": "Client({address}, open)",
    "EventWriter": "EventWriter({s}/t, open)",
    "EventReader": "EventReader({s}/t, open, 1 segments)",
    "ByteWriter": "ByteWriter({s}/bytes, open, 0 bytes not acknowledged)",
    "ByteReader": "ByteReader({s}/bytes, open, at 0)",
    "Stream": "Stream({s}/t, open)",
    "Table": "Table({s}/table, open)",
    "Tables": "Tables({address}, open)",
    "ReaderGroups": "ReaderGroups({address}, open)",
    "Links": "Links({address}, open)",
    "Coordination": "Coordination({address}, open)",
    "ReaderGroup": "ReaderGroup({s}/group, open)",
    "GroupReader": "GroupReader({s}/group, reader, open, 0 segments)",
    "TransactionalWriter": "TransactionalWriter({s}/t, open, 1 transactions)",
    "Transaction": "Transaction({id}, {s}/t, open)",
}


def test_representation_shows_the_state_open_and_closed(node) -> None:
    with sarit.connect(node.controller) as client:
        objects = instances(client, "states")
        known = {"address": node.controller, "s": "states", "id": objects["Transaction"].id}
        for name, shown in STATES.items():
            assert repr(objects[name]) == repr(objects[name]._inner) == shown.format(**known)
        for name in ("EventWriter", "EventReader", "ByteWriter", "GroupReader"):
            objects[name].close()
        objects["Transaction"].abort()
        next(client.list_scopes())  # after what `close` only posts to the loop
        for name in ("EventWriter", "EventReader", "ByteWriter", "GroupReader"):
            assert ", closed" in repr(objects[name]), name
        assert "aborted" in repr(objects["Transaction"])
        objects["Transaction"] = objects["TransactionalWriter"].begin()
    for name in STATES:
        assert ", closed" in repr(objects[name]), name


@pytest.mark.parametrize("face", FACES)
def test_pickling_says_what_to_do_instead(made, face) -> None:
    for name, one in made.items():
        says = f"a {name} cannot be pickled.*make the {name} in the worker; with Spark"
        target = one if face == "blocking" else one._inner
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=says):
                copying(target)


def test_values_are_pickled_by_their_public_names() -> None:
    for value in (sarit.StreamName("s", "t"), sarit.SegmentId(0, 1), sarit.ScalingPolicy(), sarit.Invalid("x")):
        data = pickle.dumps(value)
        assert b"sarit.core" not in data
        assert repr(pickle.loads(data)) == repr(value)


# -- tracebacks ----------------------------------------------------------------------------------


def frames(error: BaseException) -> list[str]:
    """The files of a traceback, without that of this test."""
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]


def test_refused_connection_shows_one_frame_of_ours_and_no_causes() -> None:
    with pytest.raises(sarit.Unavailable, match="is the node running") as blocking:
        sarit.connect(REFUSED, retry_timeout=0)
    assert len(frames(blocking.value)) == 1
    assert frames(blocking.value)[0].endswith("blocking/connection.py")
    assert len("".join(traceback.format_exception(blocking.value)).split("Traceback")) == 2

    async def connect() -> None:
        await aio.connect(REFUSED, retry_timeout=0)

    with pytest.raises(sarit.Unavailable, match="is the node running") as asynchronous:
        asyncio.run(connect())
    ours = [name for name in frames(asynchronous.value) if "asyncio" not in name]
    assert len(ours) == 1
    assert ours[0].endswith("client/aio.py")
    assert len("".join(traceback.format_exception(asynchronous.value)).split("Traceback")) == 2


def test_error_of_a_call_shows_one_frame_of_ours(made) -> None:
    client = made["Client"]
    for call in (
        lambda: client.stream_info("public/none"),
        lambda: client.create_stream("public/x", segments="3"),
        lambda: client.table("public/none").get("a"),
        lambda: client.writer(5),
    ):
        with pytest.raises(sarit.SaritError) as raised:
            call()
        assert len(frames(raised.value)) == 1, frames(raised.value)
        assert len("".join(traceback.format_exception(raised.value)).split("Traceback")) == 2


def test_frames_of_the_client_are_in_its_log(caplog) -> None:
    with caplog.at_level(logging.DEBUG, "sarit.client"), pytest.raises(sarit.Unavailable):
        sarit.connect(REFUSED, retry_timeout=0)
    assert "raised to the caller" in caplog.text
    assert "core/controller.py" in caplog.text
    assert caplog.text.count("raised to the caller") == 1


def test_errors_of_a_users_function_keep_their_frames(made) -> None:
    def change(values: dict) -> None:
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError) as raised:
        made["SharedConfiguration"].edit(change)
    assert any(frame.name == "change" for frame in traceback.extract_tb(raised.value.__traceback__))


# -- warnings ------------------------------------------------------------------------------------


def warned(drop) -> list[warnings.WarningMessage]:
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        drop()
    return [one for one in found if "dropped and not closed" in str(one.message)]


def test_warning_of_a_dropped_client_points_to_the_line_of_the_user(node) -> None:
    def drop() -> None:
        client = sarit.connect(node.controller)
        del client  # the line
        gc.collect()

    lines, first = inspect.getsourcelines(drop)
    (one,) = warned(drop)
    wanted = [first + n for n, line in enumerate(lines) if "# the line" in line or "gc.collect" in line]
    assert one.filename == __file__
    assert one.lineno in wanted


def test_warning_of_a_dropped_reader_points_to_the_line_of_the_user(made) -> None:
    client = made["Client"]

    def drop() -> None:
        reader = client.reader("public/t")
        reader.read_events()
        del reader  # the line
        gc.collect()

    lines, first = inspect.getsourcelines(drop)
    (one,) = warned(drop)
    wanted = [first + n for n, line in enumerate(lines) if "# the line" in line or "gc.collect" in line]
    assert one.filename == __file__
    assert one.lineno in wanted


# -- connecting ----------------------------------------------------------------------------------


async def _uses(node) -> list[str]:
    shown = []
    async with aio.connect(node.controller) as client:
        shown.append(repr(client))
    shown.append(repr(client))
    async with await aio.connect(node.controller) as client:
        shown.append(repr(client))
    client = await aio.connect(node.controller)
    await client.close()
    several = [*await asyncio.gather(aio.connect(node.controller), aio.connect(node.controller))]
    several.append(await asyncio.create_task(aio.connect(node.controller)))
    several.append(await asyncio.wait_for(aio.connect(node.controller), 60))
    for one in several:
        shown.append(repr(one))
        await one.close()
    return shown


def test_connect_may_be_awaited_entered_or_made_a_task(node) -> None:
    is_open, is_closed = f"Client({node.controller}, open)", f"Client({node.controller}, closed)"
    assert asyncio.run(_uses(node)) == [is_open, is_closed, *[is_open] * 5]


def test_block_of_a_refused_connection_raises_at_its_entry() -> None:
    async def enter() -> None:
        async with aio.connect(REFUSED, retry_timeout=0):
            raise AssertionError("entered")

    with pytest.raises(sarit.Unavailable):
        asyncio.run(enter())


def test_connection_that_nobody_awaits_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        aio.connect(REFUSED)
