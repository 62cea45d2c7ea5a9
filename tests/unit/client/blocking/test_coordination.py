"""Shared state in the blocking client, on a real node: each method once, and waiting on another thread."""

import threading

import pytest

import sarit
from tests.nodes import RunningNode

LEASE = 0.6


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("blocking") / "node") as node, sarit.connect(node.controller) as made:
        made.create_scope("s")
        yield made


def test_revisioned_stream_methods_work_blocking(client) -> None:
    stream = client.coordination.revisioned("s/r")
    first = stream.write_conditionally(sarit.Revision(0), b"one")
    stream.write_unconditionally(b"two")
    assert stream.write_conditionally(first, b"late") is None
    assert [value for _, value in stream.read_from(stream.oldest())] == [b"one", b"two"]
    assert stream.compare_and_set_mark(None, first)
    stream.truncate(first)
    assert (stream.get_mark(), stream.oldest()) == (first, first)
    with pytest.raises(sarit.Truncated):
        list(stream.read_from(sarit.Revision(0)))
    assert stream.fetch_latest() > first


def test_synchronizer_methods_work_blocking(client) -> None:
    made = client.coordination.synchronizer("s/count", int, lambda state, update, _: state + int(update))
    assert not made.known
    with pytest.raises(sarit.NotFound):
        made.fetch()
    assert made.initialize(b"5")
    assert made.update(lambda state: [b"%d" % state])
    made.update_unconditionally([b"1"])
    assert (made.known, made.state, made.fetch()) == (True, 10, 11)
    before = made.revision
    made.compact(lambda state: b"%d" % state)
    assert made.revision > before
    assert made.state == 11


def test_election_and_membership_methods_work_blocking(client) -> None:
    coordination = client.coordination
    with coordination.leader_election("s/leader", "one", lease_seconds=LEASE) as one:
        token = one.lead()
        assert (one.leading, one.token, one.leader.name) == (True, token, "one")
        with coordination.leader_election("s/leader", "two", lease_seconds=LEASE) as two:
            found: list[int] = []
            waiting = threading.Thread(target=lambda: found.append(two.lead()))
            waiting.start()
            one.resign()
            one.lost(token)
            waiting.join(10)
            assert found == [token + 1]
    with coordination.membership("s/group", "a", lease_seconds=LEASE) as member:
        assert (member.joined(), member.number, member.holds, member.name) == (1, 1, True, "a")
        before = member.members
        member.describe("new")
        assert member.changed(before)[0].data == "new"


def test_shared_configuration_methods_work_blocking(client) -> None:
    with client.coordination.shared_configuration("s/settings", {"a": 1}) as settings:
        watching = settings.watch()
        assert next(watching) == {"a": 1}
        version = settings.version
        settings.set("b", 2)
        assert settings.changed(version) > version
        assert next(watching) == {"a": 1, "b": 2} == settings.values
        assert settings.edit(lambda values: values.update(a=values["a"] + 1))
        assert settings.remove("b")
        settings.refresh()
        assert (settings.get("a"), settings.get("b", "gone")) == (2, "gone")
        watching.close()
