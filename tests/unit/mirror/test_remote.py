"""The two sides of a link over a loopback socket: what arrives is what was sent, and what is no peer is refused."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from sarit.controller.model.records import CutRecord, GroupRecord, State
from sarit.controller.service import handlers
from sarit.core.errors import Conflict, Forbidden, Invalid, Truncated, Unavailable
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import StreamName
from sarit.env.real import real_env
from sarit.mirror import calls, messages
from sarit.mirror.attached_calls import AttachedCalls
from sarit.mirror.attachments import (
    GroupFacts,
    PartitionState,
    StreamCuts,
    TableAsk,
    TableChanges,
    TableFacts,
    TableState,
    TableWrite,
)
from sarit.mirror.batch_size import BatchSize
from sarit.mirror.calls import MirrorCalls
from sarit.mirror.limits import (
    MAX_MIRROR_DATA_BYTES,
    MIN_MIRROR_BATCH_BYTES,
    MIRROR_CALL_SECONDS,
    MIRROR_MESSAGE_BYTES,
    MIRROR_PROTOCOL,
)
from sarit.mirror.peer import Peer, read_password
from sarit.mirror.remote import RemoteSource, RemoteTarget
from sarit.mirror.values import (
    LinkIdentity,
    MirrorState,
    MirrorStatus,
    Position,
    Range,
    Round,
    Site,
    Write,
    Written,
)
from sarit.rpc.generated import mirror_pb2 as pb
from sarit.rpc.mirror_methods import MIRROR
from sarit.rpc.request_limiter import RequestLimiter
from tests.rpc_calls import listen
from tests.unit.mirror.memory_sides import MemorySource, MemoryTarget

LINK = LinkIdentity(b"l" * 16, "north", "edge")


@dataclass
class Sides:
    source: MemorySource
    target: MemoryTarget


@asynccontextmanager
async def peer(sides, *, installation="here", expected="", served=MIRROR, **chosen):
    """A peer at these sides; `chosen`: settings of the link."""
    found = handlers(served, families(sides), RequestLimiter()) if served is not None else {}
    server, port = await listen(found)
    chosen = LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}", **chosen)
    made = Peer(chosen, real_env(), installation, expected)
    try:
        yield made
    finally:
        await made.close()
        server.close()
        await server.wait_closed()


def families(sides):
    return MirrorCalls(sides), AttachedCalls(sides)


def over_the_wire(main, **chosen):
    """Run `main(remote source, remote target, sides)`."""

    async def run():
        sides = Sides(MemorySource("there"), MemoryTarget("there"))
        async with peer(sides, **chosen) as found:
            return await main(RemoteSource(found), RemoteTarget(found), sides)

    return asyncio.run(run())


TEXT = b"temperature 21.5 " * 4000
NOISE = bytes(real_env().random.bytes(100_000))

# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [False, True], ids=["whole replies", "replies that end early"])
def test_stream_is_copied_over_the_wire(small, monkeypatch):
    if small:
        monkeypatch.setattr(calls, "MIRROR_MESSAGE_BYTES", 1)
        monkeypatch.setattr(messages, "MIRROR_MESSAGE_BYTES", 40)

    async def main(source, target, sides):
        if small:
            target._peer.batch.bytes = 10_000
        streams = [sides.source.create(f"app/s{number}", 2) for number in range(5)]
        for stream in streams:
            stream.append(0, TEXT)
            stream.scale(0)
            stream.append(0, NOISE[:10])
        names = [stream.name for stream in streams]
        missing = StreamName("app", "missing")
        facts = await source.facts("app", [*names, missing], 0)
        assert facts == await sides.source.facts("app", [*names, missing], 0)
        sides.target.installation = "elsewhere"  # the streams are of `there`
        begun = await target.begin(LINK, "app", facts[:-1])
        assert [state.name for state in begun] == names
        positions = [state.position for state in begun]
        offers = await source.offers("app", [*positions, Position(missing, 0, {})], 1 << 30)
        assert offers == await sides.source.offers("app", [*positions, Position(missing, 0, {})], 1 << 30)
        rounds, writes = [], []
        for position, offer in zip(positions, offers, strict=False):
            ranges = [Range(offer.name, s, position.lengths.get(s, 0), at) for s, at in offer.lengths.items() if at]
            pieces = await sides.source.read("app", ranges)
            most = target._peer.batch.bytes
            assert await source.read("app", ranges[:1]) == [pieces[0][:most]]
            writes += [Write(r.name, r.segment, r.offset, data, True) for r, data in zip(ranges, pieces, strict=True)]
            sealed = frozenset(position.lengths) - offer.epochs[-1].ids
            rounds.append(Round(offer.name, position.lengths, dict(offer.lengths), sealed, offer.epochs))
        written = await target.write(LINK, "app", writes)
        assert written == [Written(one.offset + len(one.data)) for one in writes]
        finished = await target.finish(LINK, "app", rounds)
        assert finished == await target.states(LINK, "app", names)
        assert [state.position.epoch for state in finished] == [1] * 5
        for stream in streams:
            assert sides.target.mirrors[stream.name].data == stream.data
        promoted = await target.promote(LINK, "app", names)
        assert [state.status for state in promoted] == [MirrorStatus.PROMOTED] * 5
        assert all(state.lineage is not None for state in promoted)

    over_the_wire(main)


def test_other_calls_reach_the_sides():
    async def main(source, target, sides):
        stream, other = sides.source.create("app/s"), sides.source.create("other/t")
        assert await source.scopes("") == ["app", "other"]
        assert await source.scopes("app") == ["other"]
        assert await source.streams("app", "") == [stream.facts("there", 0)]
        assert await source.streams("app", "s") == []
        assert await source.grown(LINK, "app", 0.0) is None
        assert await source.grown(LINK, "app", 0.0) == [stream.name]
        await source.hold(LINK, "app", [(stream.name, {0: 7}), (other.name, {})])
        assert sides.source.held[stream.name] == {0: 7}
        await source.fence(LINK, "app", [stream.name], b"lineage")
        assert sides.source.fenced[stream.name] == b"lineage"
        sides.target.installation = "elsewhere"
        (facts,) = await source.facts("app", [stream.name], 0)
        await target.begin(LINK, "app", [facts])
        await target.write(LINK, "app", [Write(stream.name, 0, 0, b"abc", True)])
        assert (await target.states(LINK, "app", [stream.name]))[0].staged == {0: 3}
        await target.drop(LINK, "app", [(stream.name, 0)])
        assert not (await target.states(LINK, "app", [stream.name]))[0].staged
        moved = replace(facts, head={0: 9})
        assert (await target.restart(LINK, "app", moved)).head == {0: 9}

    over_the_wire(main)


class Answers:
    """A port of what goes with streams: returns what it is given, and notes what it was asked."""

    def __init__(self, **replies):
        self.replies = replies
        self.asked = {}

    def __getattr__(self, name):
        async def call(*asked):
            self.asked[name] = asked
            return self.replies[name]

        return call


TABLE = StreamName("app", "t")
PARTITION = PartitionState(-1, 1 << 48, 3)
GROUP = GroupRecord(State.ACTIVE, "id", 1, 2, 3, 4, 0, 0, ((StreamName("app", "s"), ((1, 2),)),), ())
ROWS = ((b"k", b"value"), (b"", b""), (b"gone", None))
CHANGES = TableChanges(TABLE, 1, 5, 9, ROWS, b"a", b"", lost=True)
TABLES = [TableFacts(TABLE, b"i" * 16, 7, 2, 8, 0, 0, (1 << 48, 5), ("edge", "core"))]
STATE = TableState(TABLE, MirrorStatus.BUSY, (PARTITION, PARTITION), "it waits")
CUTS_OF = [StreamCuts(TABLE, (CutRecord(5, 0, {1: 2}), CutRecord(6, 0, {1: 3})))]
ATTACHED_CALLS = [
    ("source", "tables", ("app", "s"), TABLES),
    ("source", "table_changes", ("app", TableAsk(TABLE, b"i" * 16, 1, 5, b"a", b"")), CHANGES),
    ("source", "table_changes", ("app", TableAsk(TABLE, b"i" * 16, 1, -1)), replace(CHANGES, high=None, since=-1)),
    ("source", "cuts", ("app", [(TABLE, 5)]), CUTS_OF),
    ("source", "groups", ("app", ""), [GroupFacts("g", GROUP)]),
    ("target", "begin_tables", (LINK, "app", TABLES), [STATE]),
    ("target", "compare_table", (LINK, "app", TABLE, 1), STATE),
    ("target", "write_table", (LINK, "app", TableWrite(CHANGES, PARTITION, ends_comparison=True)), STATE),
    ("target", "cut_times", (LINK, "app", [TABLE]), [77]),
    ("target", "add_cuts", (LINK, "app", CUTS_OF), None),
    ("target", "put_groups", (LINK, "app", [GroupFacts("g", GROUP)]), ["its readers are online"]),
    ("target", "promote_attached", (LINK, "_system"), [replace(STATE, name=StreamName("_system", "registry"))]),
]


@pytest.mark.parametrize(("side", "call", "asked", "reply"), ATTACHED_CALLS)
def test_what_goes_with_streams_arrives_as_it_was_sent(side, call, asked, reply):
    async def main(source, target, sides):
        answers = Answers(**{call: reply})
        getattr(sides, side).attached = answers
        found = await getattr((source if side == "source" else target).attached, call)(*asked)
        assert answers.asked[call] == asked
        assert found == reply

    over_the_wire(main)


@pytest.mark.parametrize("discard", [False, True])
def test_link_says_whether_to_discard_what_is_divergent(discard):
    async def main(source, target, sides):
        asked = []

        async def begin(*_, discard_divergent):
            asked.append(discard_divergent)
            return [MirrorState(facts.name, MirrorStatus.READY)]

        sides.target.begin = begin
        facts = sides.source.create("app/s").facts("elsewhere", 0)
        await target.begin(LINK, "app", [facts], discard_divergent=discard)
        assert asked == [discard]

    over_the_wire(main)


def test_growth_of_which_the_reply_was_lost_is_said_again():
    async def main(source, target, sides):
        stream = sides.source.create("app/s")
        assert await source.grown(LINK, "app", 0.0) is None
        assert await source.grown(LINK, "app", 0.0) == [stream.name]
        stream.append(0, b"a")
        number = dict(source._replies)
        assert await source.grown(LINK, "app", 0.0) == [stream.name]
        source._replies = number  # as if that reply had not arrived
        assert await source.grown(LINK, "app", 0.0) is None
        assert await source.grown(LINK, "app", 0.0) == []

        # A call that its client has given up still waits, and takes what comes.
        stream.append(0, b"b")
        abandoned = RemoteSource(source._peer)
        abandoned._replies = dict(source._replies)
        grown, arrived, now = asyncio.Event(), [], sides.source.grown

        async def late(*asked):
            arrived.append(asked)
            await grown.wait()
            return await now(*asked)

        sides.source.grown = late
        both = [asyncio.create_task(each.grown(LINK, "app", 0.0)) for each in (abandoned, source)]
        while len(arrived) < 2:
            await asyncio.sleep(0)
        grown.set()
        assert (await both[0], await both[1]) == ([stream.name], [])
        assert await source.grown(LINK, "app", 0.0) is None

    over_the_wire(main)


def test_few_calls_wait_for_growth(monkeypatch):
    monkeypatch.setattr(calls, "MAX_MIRROR_WAITS", 1)

    async def main(source, target, sides):
        waited, go_on = [], asyncio.Event()

        async def grown(link, scope, seconds):
            waited.append(seconds)
            await go_on.wait()
            return []

        sides.source.grown = grown
        both = [asyncio.create_task(source.grown(LINK, "app", 20.0)) for _ in range(2)]
        while len(waited) < 2:
            await asyncio.sleep(0)
        assert waited == [20.0, 0.0]
        go_on.set()
        assert await asyncio.gather(*both) == [[], []]
        await source.grown(LINK, "app", 7.0)
        assert waited[2:] == [7.0]

    over_the_wire(main)


def test_errors_keep_their_kinds():
    async def main(source, target, sides):
        stream = sides.source.create("app/s")
        stream.append(0, b"abc")
        stream.starts[0] = 2
        with pytest.raises(Truncated) as gone:
            await source.read("app", [Range(stream.name, 0, 0, 3)])
        assert gone.value.start_offset == 2

        async def refuse(*_):
            raise Conflict("no position of this stream")

        sides.source.offers = refuse
        with pytest.raises(Conflict, match="no position"):
            await source.offers("app", [Position(stream.name, 0, {0: 1})], 1)

        async def forbid(*_):
            raise Forbidden("not you")

        sides.target.states = forbid
        with pytest.raises(Forbidden, match="not you"):
            await target.states(LINK, "app", [stream.name])

    over_the_wire(main)


def test_read_is_bounded_on_both_sides():
    async def main(source, target, sides):
        stream = sides.source.create("app/s")
        stream.append(0, b"a" * (MAX_MIRROR_DATA_BYTES + 10))
        sides.source._read_bytes = 1 << 30
        wanted = Range(stream.name, 0, 0, 1 << 40)
        (found,) = await source.read("app", [wanted, wanted])
        assert len(found) == MIRROR_MESSAGE_BYTES
        request = pb.MirrorReadRequest(scope="app", ranges=[messages.range_message(wanted)])
        with pytest.raises(Invalid, match="at most"):
            await source._peer.call(MIRROR.mirrorRead, request)

    over_the_wire(main)


def test_refused_piece_is_the_result_of_its_write():
    async def main(source, target, sides):
        target._peer.batch.bytes = 10
        name = StreamName("app", "s")
        await target.begin(LINK, "app", [sides.source.create("app/s").facts("elsewhere", 0)])
        good, late = Write(name, 0, 0, b"a" * 25, True), Write(name, 0, 77, b"b" * 25, True)
        assert await target.write(LINK, "app", [good, late]) == [Written(25), Written(25, refused=True)]
        whole = Write(name, 0, 0, b"a" * 25, False)
        assert await target.write(LINK, "app", [whole]) == [Written(25)]

    over_the_wire(main)


def test_batches_get_shorter_on_a_slow_network():
    size = BatchSize()
    size.failed(1.0)  # it was refused at once: a smaller one would be, too
    assert size.bytes == MIRROR_MESSAGE_BYTES
    for _ in range(20):
        size.failed(MIRROR_CALL_SECONDS)
    assert size.bytes == MIN_MIRROR_BATCH_BYTES
    size.answered(MIRROR_CALL_SECONDS / 2)
    assert size.bytes == MIN_MIRROR_BATCH_BYTES
    for _ in range(20):
        size.answered(0.1)
    assert size.bytes == MIRROR_MESSAGE_BYTES


@pytest.mark.parametrize("change", ["more", "other", "none"])
def test_reply_about_other_streams_is_refused(change):
    async def main(source, target, sides):
        one, two = sides.source.create("app/a"), sides.source.create("app/b")
        found = {"more": [one, two], "other": [two], "none": []}[change]

        async def answer(*_):
            return [each.facts("there", 0) for each in found]

        sides.source.facts = answer
        with pytest.raises(Invalid, match="answers"):
            await source.facts("app", [one.name], 0)

    over_the_wire(main)


# -- who the peer is -------------------------------------------------------------------------------


def test_link_to_itself_is_refused():
    async def main(source, target, sides):
        with pytest.raises(Invalid, match="a link to itself"):
            await source.site()
        with pytest.raises(Invalid, match="a link to itself"):
            await target.states(LINK, "app", [StreamName("app", "s")])

    over_the_wire(main, installation="there")


def test_peer_that_is_another_installation_than_before_is_refused():
    async def main(source, target, sides):
        with pytest.raises(Invalid, match="another installation"):
            await source.scopes("")
        sides.source.installation = "before"
        assert (await source.site()).installation == "before"
        assert await source.scopes("") == []

    over_the_wire(main, expected="before")


def test_peer_of_another_version_is_refused():
    async def main(source, target, sides):
        sides.source.protocol = MIRROR_PROTOCOL + 1
        with pytest.raises(Invalid, match=f"version {MIRROR_PROTOCOL + 1} .* version {MIRROR_PROTOCOL}"):
            await source.scopes("")

    over_the_wire(main)


def test_peer_without_links_is_refused():
    async def main(source, target, sides):
        with pytest.raises(Invalid, match="knows no links"):
            await source.site()

    over_the_wire(main, served=None)


def test_peer_that_is_away_is_reached_when_it_is_back():
    async def main():
        sides = Sides(MemorySource("there"), MemoryTarget("there"))
        found = handlers(MIRROR, families(sides), RequestLimiter())
        server, port = await listen(found)
        server.close()
        await server.wait_closed()
        made = Peer(LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}"), real_env(), "here")
        source = RemoteSource(made)
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            await source.scopes("")
        server, _ = await listen(found, address=("127.0.0.1", port))
        assert await source.scopes("") == []
        assert (await source.site()) == Site("there", MIRROR_PROTOCOL, 1_000)
        await made.close()
        server.close()

    asyncio.run(main())


# -- the log-in ------------------------------------------------------------------------------------


def test_password_is_read_from_its_place_and_never_shown(tmp_path):
    file = tmp_path / "link.password"
    file.write_text("secret\nnot this\n")
    assert read_password(f"file:{file}") == "secret"
    assert read_password("env:SARIT_LINK_NORTH", {"SARIT_LINK_NORTH": "secret2"}) == "secret2"
    for place in (f"file:{tmp_path}/gone.password", "env:SARIT_LINK_NORTH", "env:", "secret", ""):
        with pytest.raises(Invalid) as refused:
            read_password(place, {})
        assert "password" in str(refused.value)
        assert "secret" not in str(refused.value)


def test_log_in_that_was_refused_is_read_again(tmp_path):
    """An administrator writes another password into the file, and the link goes on."""
    file = tmp_path / "link.password"
    file.write_text("old")
    seen = []

    class Access:
        async def caller(self, call, authorization, peer):
            from base64 import b64decode

            from sarit.core.errors import Unauthenticated

            login = b64decode(authorization.removeprefix("Basic ")).decode()
            seen.append(login)
            if login != "link:new":
                raise Unauthenticated("log in")
            return login

        async def carry_out(self, call, method, request, caller, peer):
            return await method(request)

    async def main():
        from sarit.core.errors import Unauthenticated

        sides = Sides(MemorySource("there"), MemoryTarget("there"))
        server, port = await listen(handlers(MIRROR, families(sides), RequestLimiter(), Access()))
        chosen = LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}", user="link", password=f"file:{file}")
        made = Peer(chosen, real_env(), "here")
        source = RemoteSource(made)
        with pytest.raises(Unauthenticated):
            await source.scopes("")
        file.write_text("new")
        assert await source.scopes("") == []
        # Only a connection, or a refusal, makes it read the file.
        file.write_text("newer")
        assert await source.scopes("") == []
        assert seen == ["link:old", "link:new", "link:new", "link:new"]
        assert "new" not in repr(made) + json.dumps(repr(chosen))
        await made.close()
        server.close()

    asyncio.run(main())


def test_password_is_not_sent_to_another_machine_in_clear_text(tmp_path, monkeypatch):
    monkeypatch.delenv("SARIT_PLAIN_PASSWORDS", raising=False)
    file = tmp_path / "link.password"
    file.write_text("secret")
    chosen = LinkSettings(LinkDirection.PUSH, "192.0.2.1:9090", user="link", password=f"file:{file}")

    async def main():
        with pytest.raises(Invalid, match="clear text"):
            await Peer(chosen, real_env(), "here").site()

    asyncio.run(main())


def test_link_of_the_called_installation_is_no_caller() -> None:
    forged = LinkIdentity(LINK.link_id, LINK.name, "there")

    async def main() -> None:
        sides = Sides(MemorySource("there"), MemoryTarget("there"))
        calls = MirrorCalls(sides, own="there"), AttachedCalls(sides, own="there")
        found = handlers(MIRROR, calls, RequestLimiter())
        server, port = await listen(found)
        made = Peer(LinkSettings(LinkDirection.PUSH, f"127.0.0.1:{port}"), real_env(), "here")
        try:
            assert await RemoteTarget(made).states(LINK, "app", []) == []
            for call in (
                RemoteTarget(made).states(forged, "app", [TABLE]),
                RemoteSource(made).grown(forged, "app", 0.0),
            ):
                with pytest.raises(Invalid, match="of a link of this one"):
                    await call
        finally:
            await made.close()
            server.close()
            await server.wait_closed()

    asyncio.run(main())
