"""Every wrong use of a public method raises Invalid at once; by introspection, so that a new method is covered."""

import asyncio
import inspect
import math
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

import sarit
from sarit.client import aio
from sarit.client.session.guard import MARK
from sarit.client.writer.writer import _wake_here
from sarit.core.errors import Invalid
from sarit.core.names import StreamName
from sarit.core.policies import RetentionPolicy, RetentionType, ScalingPolicy
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.unit.client.surface import FACADES, FACES, arguments, instances, methods, surface

# Checked by the method itself, on the way of every event: test_hot_methods_* below.
HOT = {("EventWriter", "write"), ("EventWriter", "write_many"), ("EventWriter", "drain")}
HOT |= {("Transaction", "write"), ("Transaction", "write_many")}
# They end something, or tell what is known here: they work on a closed client, too.
LOCAL = {"close", "abandon", "position", "tell", "get", "flush", "seek"}
ROOT = Path(__file__).parents[3]
SECONDS = 20  # only a hang takes longer


class Wrong:
    """Of no type that anything takes."""

    def __repr__(self) -> str:
        return "<wrong>"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("misuse") / "node") as running:
        yield running


@pytest.fixture(scope="module")
def made(node):
    """One blocking object of each class, on an open client."""
    with sarit.connect(node.controller) as client:
        yield instances(client, "s")


def call(face: str, target: object, method: str, *args, **kwargs) -> object:
    """The result of a method; what is asynchronous runs on a loop of its own; of an iterator the first item."""
    found = getattr(target, method)(*args, **kwargs)
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    if hasattr(found, "__anext__"):
        return asyncio.run(anext(found))
    return next(found) if inspect.isgenerator(found) else found


def of_face(face: str, target):
    return target if face == "blocking" else target._inner


def checked() -> list[tuple[str, str, str]]:
    return [one for one in surface() if one[1:] not in HOT]


def test_every_public_method_is_guarded():
    open_ended = [one for one in checked() if not hasattr(getattr(FACES[one[0]][one[1]], one[2]), MARK)]
    unguarded = [one for one in open_ended if one[2] not in ("__iter__",)]
    assert not unguarded, "let `guarded` check it, or add it to HOT with tests of its own"
    assert len(checked()) > 200


def test_method_with_nothing_to_check_is_not_wrapped():
    """`flush` has no arguments and works on a closed client: a wrapper cost each call a coroutine."""
    assert not hasattr(aio.EventWriter.flush, "__wrapped__")
    assert hasattr(aio.EventWriter.note_time, "__wrapped__")


def test_every_argument_of_a_wrong_type_is_refused(made):
    accepted = []
    for face, name, method in checked():
        for argument in arguments(face, name, method):
            with pytest.raises(Invalid) as refused:
                call(face, of_face(face, made[name]), method, **{argument: Wrong()})
                accepted.append((face, name, method, argument))
            if argument not in str(refused.value) or "<wrong>" not in str(refused.value):
                accepted.append((face, name, method, argument, str(refused.value)))
    assert not accepted


@pytest.mark.parametrize("name", ["EventWriter", "Transaction"])
@pytest.mark.parametrize("method", ["write", "write_many"])
def test_hot_methods_of_the_blocking_client_are_typed_and_cost_no_call(name, method, made):
    shown = inspect.signature(getattr(FACES["blocking"][name], method))
    assert all(one.annotation is not one.empty for one in list(shown.parameters.values())[1:])
    assert "Any" not in str(shown)
    inner = made[name]._inner
    assert getattr(made[name], method) == getattr(inner, method)


USES = {
    "event that UTF-8 cannot encode": (lambda c: c.writer("s/t").write("\ud800"), "valid Unicode"),
    "batch that UTF-8 cannot encode": (lambda c: c.writer("s/t").write_many(["\ud800"]), "valid Unicode"),
    "page of a search as text": (lambda c: c.search("s/t", "a", page="x"), r"Searches\(page='x'\): give bytes"),
    "stream is a number": (lambda c: c.writer(5), "stream=5"),
    "stream without a scope": (lambda c: c.reader("t"), "SCOPE/STREAM"),
    "text that UTF-8 cannot encode": (lambda c: c.create_scope("\ud800"), "valid Unicode"),
    "segments as text": (lambda c: c.create_stream("s/x", segments="3"), "give an int"),
    "segments as bool": (lambda c: c.create_stream("s/x", segments=True), "give an int"),
    "tags as one text": (lambda c: c.create_stream("s/x", tags="red"), "a list of items, each a str"),
    "a tag that is a number": (lambda c: c.create_stream("s/x", tags=[1]), "a list of items, each a str"),
    "policy by name": (lambda c: c.create_stream("s/x", scaling="fixed"), "a ScalingPolicy"),
    "segments of a policy as text": (
        lambda c: c.create_stream("s/x", scaling=ScalingPolicy(min_segments="3")),
        r"ScalingPolicy\(min_segments='3'\): give an int",
    ),
    "limit of a policy as a float": (
        lambda c: c.create_stream("s/x", retention=RetentionPolicy(RetentionType.SIZE, 1.5)),
        r"RetentionPolicy\(limit=1.5\): give an int",
    ),
    "negative buffer": (lambda c: c.writer("s/t", buffer_bytes=-1), "0 or more"),
    "buffer as a float": (lambda c: c.writer("s/t", buffer_bytes=1.5), "an int"),
    "start as a number": (lambda c: c.reader("s/t", start=0), "a StreamCut, a str"),
    "no cut": (lambda c: c.reader("s/t", start="middle"), "not a stream cut"),
    "negative offset": (lambda c: c.byte_reader("s/bytes", -1), "0 or more"),
    "offset beyond int64": (lambda c: c.byte_reader("s/bytes", 1 << 63), "offset="),
    "time-out as text": (lambda c: c.reader("s/t").read_events(timeout="3"), "0 to 1e\\+09"),
    "time-out that is no number": (lambda c: c.reader("s/t").read_events(timeout=math.nan), "timeout=nan"),
    "negative time-out": (lambda c: c.reader("s/t").read_events(timeout=-1), "timeout=-1"),
    "segment as a number": (lambda c: c.successors("s/t", 0), "a SegmentId"),
    "segments that are no ids": (lambda c: c.segment_infos("s/t", [0]), "each a SegmentId"),
    "streams of a group as a number": (lambda c: c.reader_groups.create("s/g", 7), "streams=7"),
    "a position that is bytes": (
        lambda c: c.reader_groups.open("s/group").reader_offline("r", b"x"),
        "a Position or None",
    ),
    "key of a table as a number": (lambda c: c.table("s/table").put(1, "v"), "key=1"),
    "transaction that is none": (lambda c: c.transactional_writer("s/t").status("one"), "no id of a transaction"),
    "lease as text": (lambda c: c.transactional_writer("s/t", lease_seconds="30"), "lease_seconds='30'"),
    "bytes as a number": (lambda c: c.byte_writer("s/bytes").write(5), "give bytes, bytearray or memoryview"),
    "bytes as text": (lambda c: c.byte_writer("s/bytes").write("text"), "give bytes, bytearray or memoryview"),
    "time as text": (lambda c: c.writer("s/t").note_time("now"), "time='now'"),
    "time beyond int64": (lambda c: c.writer("s/t").note_time(1 << 63), "time="),
    "update that is no function": (
        lambda c: c.coordination.synchronizer("s/shared", bytes, None),
        "apply=None\\): give a function",
    ),
}


@pytest.mark.parametrize("use", USES)
def test_wrong_use_is_refused_with_what_to_give(use, made):
    wrong, says = USES[use]
    with pytest.raises(Invalid, match=says):
        wrong(made["Client"])


@pytest.mark.parametrize("seconds", ["3", math.nan, -1.0, None, True, [3]])
@pytest.mark.parametrize("argument", ["retry_timeout", "wait"])
def test_time_that_is_none_is_refused_before_anything_is_connected(argument, seconds, node):
    threads = threading.active_count()
    with pytest.raises(Invalid, match=f"connect\\({argument}="):
        sarit.connect(node.controller, **{argument: seconds})
    assert threading.active_count() == threads
    with pytest.raises(Invalid, match=f"connect\\({argument}="):
        asyncio.run(aio.connect(node.controller, **{argument: seconds}))


# -- a client that cannot be used ----------------------------------------------------------------


def accepted(targets: dict[str, object], face: str, run=call) -> list[str]:
    """The methods that do not raise Invalid."""
    wrong = []
    for name in FACADES:
        for method in methods(face, name):
            if method in LOCAL or (name, method) in HOT:
                continue
            try:
                run(face, of_face(face, targets[name]), method)
            except Invalid:
                continue
            except BaseException as error:
                wrong.append(f"{face} {name}.{method}: {error!r}")
            else:
                wrong.append(f"{face} {name}.{method} was accepted")
    return wrong


@pytest.fixture(scope="module")
def closed(node):
    with sarit.connect(node.controller) as client:
        targets = instances(client, "closed")
    return targets


@pytest.mark.parametrize("face", FACES)
def test_every_method_on_a_closed_client_raises_at_once(face, closed):
    assert not accepted(closed, face)


def test_hot_methods_on_a_closed_client_raise_at_once(closed):
    assert not accepted_when_written(closed)
    with pytest.raises(Invalid, match="closed"):
        asyncio.run(closed["EventWriter"]._inner.drain())


FORKS = """
import os, sys
import sarit
from tests.unit.client.surface import FACES, instances
from tests.unit.client.test_misuse import accepted, accepted_when_written

with sarit.connect(sys.argv[1]) as client:
    targets = instances(client, "forked")
    if os.fork() == 0:
        wrong = [one for face in FACES for one in accepted(targets, face)] + accepted_when_written(targets)
        sys.stdout.write("\\n".join(wrong))
        sys.exit(1 if wrong else 0)
    status = os.waitstatus_to_exitcode(os.wait()[1])
    targets["EventWriter"].write("the parent goes on")
    targets["EventWriter"].flush()
sys.exit(status)
"""


def accepted_when_written(targets) -> list[str]:
    """The hot methods that do not raise Invalid."""
    wrong = []
    for writer in (targets["EventWriter"], targets["Transaction"]):
        for target in (writer, writer._inner):
            for write in (target.write, lambda event, target=target: target.write_many([event])):
                try:
                    write("late")
                except Invalid:
                    continue
                wrong.append(f"{target!r} takes events")
    return wrong


def test_every_method_after_a_fork_raises_at_once(node):
    done = subprocess.run(
        [sys.executable, "-c", FORKS, node.controller],
        cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


async def _on_this_loop(target, method: str) -> object:
    found = getattr(target, method)()
    if inspect.iscoroutine(found):
        return await found
    return await anext(found) if hasattr(found, "__anext__") else found


def test_every_method_on_another_loop_raises_at_once(node):
    with sarit.connect(node.controller) as client:
        targets = instances(client, "elsewhere")
        session = client._inner.session
        session.shared_by_threads = False  # as a client that was made on that loop by its user

        def run(_face, target, method):
            return asyncio.run(asyncio.wait_for(_on_this_loop(target, method), SECONDS))

        assert not accepted(targets, "asyncio", run)

        async def write() -> None:
            aio_writer = client._inner.writer(StreamName("elsewhere", "t"))
            aio_writer.write("never sent")

        with pytest.raises(Invalid, match="another one runs here"):
            asyncio.run(write())
        session.shared_by_threads = True


def test_plain_methods_after_their_loop_has_ended_raise_at_once(node):
    async def connect():
        client = await aio.connect(node.controller)
        return client, client.writer("s/t")

    client, writer = asyncio.run(connect())
    with pytest.raises(Invalid, match="has ended"):
        client.writer("s/t")
    with pytest.raises(Invalid, match="has ended"):
        writer.write("never sent")


def test_refused_write_does_not_stay_in_the_writer(made):
    """An event written on another loop is not sent later, nor counted as not acknowledged."""
    inner = made["EventWriter"]._inner
    bound = inner._wake
    inner._wake, inner._session.shared_by_threads = partial(_wake_here, inner), False

    async def write() -> None:
        inner.write("never sent", key="a")

    with pytest.raises(Invalid):
        asyncio.run(write())
    inner._wake, inner._session.shared_by_threads = bound, True
    assert inner.pending_bytes() == 0
