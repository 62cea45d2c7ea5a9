"""Searches on one controller and on several, over indexes made by hand, beside an evaluation of each event."""

from __future__ import annotations

import asyncio
import random
import threading
from base64 import b64encode
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sarit.admin.metric_table import METRICS
from sarit.controller.access import Access
from sarit.controller.authorized_caller import Authorized, current_authorized
from sarit.core.errors import Corrupt, Invalid, NotFound, Unauthenticated, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import SegmentId
from sarit.env.real import real_env
from sarit.process.search import family as family_module
from sarit.process.search import other_controllers
from sarit.process.search.family import SearchFamily
from sarit.process.search.other_controllers import OtherControllers
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.grpc_server import GrpcListener
from sarit.rpc.handlers import rpc_handler
from sarit.rpc.request_limiter import RequestLimiter
from sarit.rpc.search_cuts import cut_of
from sarit.rpc.search_methods import SEARCH
from sarit.search.answers import holders
from sarit.search.field_values import order_key
from sarit.search.slots import SearchSlots
from sarit.search.tantivy_shards import TantivyShards
from sarit.security.login import Logins
from sarit.security.permissions import Permission
from sarit.security.tokens import TokenKeys
from sarit.security.users import User, hash_password
from tests.limits import HANG_SECONDS
from tests.unit.controller.world import STREAM, World, stream_with
from tests.unit.process.search_index import HandMadeIndex, event

HERE = ("127.0.0.1", 9090)


def request(query="*", **fields):
    return pb.SearchRequest(scope="s", stream="t", query=query.encode(), **{"limit": 1000, "facetLimit": 10} | fields)


class Place:
    """A controller whose stream has an index."""

    def __init__(self, path, engine=None):
        self.world, self.path = World(), path
        self.index = HandMadeIndex(path, self.world.segments, engine)
        self.families = []

    async def start(self, segments=1):
        self.controller = await self.world.controller()
        await stream_with(self.controller, segments)
        self.index.begin([SegmentId(0, number) for number in range(segments)])
        await self.index.create(self.controller)
        self.family = self.searches()

    def searches(self, controller=None, members=lambda: [HERE]):
        world = SimpleNamespace(
            controller=controller or self.controller, site=self.index.site(f"copies{len(self.families)}"),
            env=real_env(), security=SimpleNamespace(own_tls=lambda: None), members=members,
        )  # fmt: skip
        self.families.append(SearchFamily(world, world.site))
        return self.families[-1]

    async def search(self, query="*", **fields):
        return await self.family.search(request(query, **fields))


def run(path, work, engine=None, **started):
    async def main():
        place = Place(path, engine)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await place.start(**started)
                await work(place)
        finally:
            for one in place.families:
                await one.close()

    asyncio.run(main())


def places(reply):
    return [(hit.segment, hit.offset) for hit in reply.hits]


def test_search_finds_what_was_committed_and_counts_it(tmp_path):
    async def work(place):
        place.index.add(1000, event("payment failed", "alice"))
        place.index.add(2000, event("payment made", "bob"))
        assert (await place.search()).total == 0, "nothing was committed"
        first = await place.index.commit()
        place.index.add(61_000, event("payment failed again", "alice"))
        reply = await place.search("failed", bucketMs=60_000, facets=["user"])
        assert (reply.total, reply.shards, reply.committedMs) == (1, 1, 12345)
        assert cut_of(reply.cut, STREAM) == first
        second = await place.index.commit(close=True)
        reply = await place.search("failed", bucketMs=60_000, facets=["user"])
        assert [(hit.timeMs, hit.offset) for hit in reply.hits] == [
            (61_000, place.index.events[2][2]), (1000, place.index.events[0][2]),
        ]  # fmt: skip
        assert [(one.beginMs, one.events) for one in reply.buckets] == [(0, 1), (60_000, 1)]
        assert [(one.field, [(v.value, v.events) for v in one.values]) for one in reply.facets] == [
            ("user", [("alice", 2)])
        ]
        assert cut_of(reply.cut, STREAM) == second
        assert (await place.search("user:bob")).total == 1
        assert (await place.search("failed", fromMs=1000, untilMs=61_000)).total == 1
        assert (await place.search("failed", fromMs=1001)).total == 1
        assert (await place.search("failed", limit=0)).total == 2
        assert (await place.search("failed", sort="oldest")).hits[0].timeMs == 1000
        with pytest.raises(Invalid):
            await place.search("usr:bob")
        counted = {(name, *labels): value for name, labels, value in place.family.samples()}
        assert counted["sarit_searches_total", "found"] == 8
        assert counted["sarit_searches_total", "refused"] == 1
        assert counted["sarit_searches_total", "failed"] == counted[("sarit_searches_running",)] == 0
        assert counted[("sarit_searches_copies_bytes",)] > 0
        assert counted[("sarit_searches_seconds_total",)] > 0
        assert counted[("sarit_searches_copied_bytes_total",)] >= counted[("sarit_searches_copies_bytes",)]
        names = {metric.name for metric in METRICS if metric.name.startswith("sarit_searches_")}
        assert {name for name, *_ in counted} == names
        place.index.state = replace(place.index.state, closed=replace(place.index.state.closed, checksum=0))
        await place.index._claim.save(place.index.state.encode())
        with pytest.raises(Corrupt):
            await place.search()
        assert ("sarit_searches_total", ("failed",), 1) in list(place.family.samples())

    run(tmp_path, work)


@pytest.mark.parametrize("engine", ["memory", "tantivy"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_an_evaluation_of_each_event(tmp_path, seed, engine):
    rng = random.Random(seed)
    segments = {0: [SegmentId(0, 0), SegmentId(0, 1)]}

    async def work(place):
        index, controller = place.index, place.controller
        active, gone = list(segments[0]), set()
        for step in range(8):
            for _ in range(rng.randrange(1, 12)):
                text = " ".join(rng.choices(["one", "two", "three"], k=2))
                at = rng.randrange(-50_000, 50_000)  # before 1970, too
                index.add(at, event(text, rng.choice("abc"), step), rng.choice(active))
            await index.commit(close=rng.random() < 0.5)
            if rng.random() < 0.3:  # a segment is replaced by two
                old = rng.choice(active)
                record = await controller.streams.ready(STREAM)
                part = next(one for one in record.current.segments if one.segment == old.packed)
                await controller.streams.scale(STREAM, [old.packed], KeyRange(part.low, part.high).split_evenly(2))
                record = await controller.streams.ready(STREAM)
                new = [SegmentId.unpack(one.segment) for one in record.current.segments]
                index.replace(old, *[one for one in new if one not in active])
                active = new
            if rng.random() < 0.4:
                await truncate(place, rng, active, gone)
            for _ in range(3):
                await compare(place, rng, gone)

    async def truncate(place, rng, active, gone):
        """Truncate at some event of each active segment: so all of the others is gone."""
        cut = {}
        for segment in active:
            here = [one[2] for one in place.index.events if one[1] == segment.packed and one[1:3] not in gone]
            cut[segment.packed] = rng.choice(here) if here else place.index.cut.positions[segment]
        await place.controller.streams.truncate(STREAM, cut)
        gone |= {one[1:3] for one in place.index.events if one[2] < cut.get(one[1], 1 << 60)}

    async def compare(place, rng, gone):
        word, low = rng.choice(["one", "two", "*"]), rng.randrange(-50_000, 50_000)
        high = rng.randrange(low, 50_001)
        sort = rng.choice(["newest", "oldest"])
        wanted = sorted(
            (
                (time_ms, segment, offset, found["user"])
                for time_ms, segment, offset, found in place.index.events
                if low <= time_ms < high
                and (word == "*" or word in found["text"].split())
                and (segment, offset) not in gone
            ),
            key=lambda one: one[0],
            reverse=sort == "newest",
        )
        limit, shown, page = rng.randrange(1, 6), [], b""
        while True:
            reply = await place.search(
                word, fromMs=low, untilMs=high, sort=sort, limit=limit, bucketMs=1000, facets=["user"], page=page
            )
            shown += reply.hits
            assert reply.total == len(wanted)
            if not page:
                assert sum(one.events for one in reply.buckets) == len(wanted)
                assert sum(v.events for one in reply.facets for v in one.values) == len(wanted)
            page = reply.page
            if not page:
                break
            assert len(reply.hits) == limit
        assert [hit.timeMs for hit in shown] == [time_ms for time_ms, *_ in wanted]
        found = [(hit.timeMs, hit.segment, hit.offset) for hit in shown]
        assert sorted(found) == sorted(one[:3] for one in wanted)  # each once

    run(tmp_path, work, TantivyShards() if engine == "tantivy" else None, segments=2)


def test_later_pages_show_nothing_that_came_after_the_first(tmp_path):
    async def work(place):
        for at in range(10):
            place.index.add(1000 * at, event("word"))
        await place.index.commit()
        first = await place.search("word", limit=4)
        for at in range(10):
            place.index.add(1000 * at, event("word"))  # late ones, with the times of those before
        await place.index.commit(close=True)
        place.index.add(500, event("word"))
        await place.index.commit()
        shown, reply = list(first.hits), first
        while reply.page:
            reply = await place.search("word", limit=4, page=reply.page)
            assert (reply.total, reply.cut) == (10, first.cut)
            shown += reply.hits
        assert [hit.timeMs for hit in shown] == [1000 * at for at in reversed(range(10))]
        assert (await place.search("word")).total == 21

    run(tmp_path, work)


def test_truncated_events_are_never_answered(tmp_path):
    async def work(place):
        for at in range(6):
            place.index.add(1000 * at, event(f"word{at}", f"user{at}"))
            if at in (1, 3):
                await place.index.commit(close=True)
        await place.index.commit()
        await place.controller.streams.truncate(STREAM, {0: place.index.events[3][2]})
        reply = await place.search(bucketMs=1000, facets=["user"])
        assert [hit.timeMs for hit in reply.hits] == [5000, 4000, 3000]
        assert reply.total == 3
        assert [one.beginMs for one in reply.buckets] == [3000, 4000, 5000]
        assert [value.value for value in reply.facets[0].values] == ["user3", "user4", "user5"]
        # Nor by the call between controllers, whoever makes it.
        asked = pb.SearchShardsRequest(
            scope="s", stream="t", commits=0, shards=[b"shard1", b"shard2", b"shard3"], query=b"*",
            low=-(1 << 62), high=1 << 62, sort="newest", limit=10, facets=["user"], facetLimit=10,
        )  # fmt: skip
        part = await place.family.searchShards(asked)
        assert [hit.timeMs for hit in part.hits] == [5000, 4000, 3000]
        assert part.total == 3

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"query": "a ("}, "query"),
        ({"query": "usr:alice"}, "user"),
        ({"facets": ["text"]}, "user"),
        ({"limit": 1001}, "limit"),
        ({"sort": "best"}, "newest"),
        ({"page": b"x" * 50}, "page"),
        ({"fromMs": 1 << 60}, "milliseconds"),
        ({"query": "x" * 5000}, "characters"),
    ],
)
def test_search_that_is_wrong_is_refused_with_what_to_do(tmp_path, fields, why):
    async def work(place):
        place.index.add(1000, event("payment"))
        await place.index.commit()
        with pytest.raises(Invalid, match=why):
            await place.search(**fields)

    run(tmp_path, work)


def test_stream_without_an_index_is_refused_with_what_to_do(tmp_path):
    async def work(place):
        await place.controller.jobs.delete(place.index._claim.job.key)
        with pytest.raises(Invalid, match="sarit stream update s/t --searchable"):
            await place.search()
        info = await place.family.searchInfo(pb.SearchInfoRequest(scope="s", stream="t"))
        assert not info.searchable
        with pytest.raises(NotFound):
            await place.family.search(pb.SearchRequest(scope="s", stream="no", query=b"*"))

    run(tmp_path, work)


def test_info_says_how_far_the_index_is(tmp_path):
    async def work(place):
        info = await place.family.searchInfo(pb.SearchInfoRequest(scope="s", stream="t"))
        assert (info.searchable, info.events, info.intervalSeconds, info.start) == (True, 0, 5, "head")
        assert not info.HasField("cut")
        place.index.add(1000, event("payment"))
        cut = await place.index.commit()
        place.world.segments.append(STREAM.segment(SegmentId(0, 0)), "00", 1000)
        info = await place.family.searchInfo(pb.SearchInfoRequest(scope="s", stream="t"))
        assert (info.events, info.shards, cut_of(info.cut, STREAM)) == (1, 1, cut)
        assert info.bytesBehind == 1000
        assert [(one.path, one.kind) for one in info.fields] == [
            ("user", "keyword"), ("text", "text"), ("n", "number"),
        ]  # fmt: skip

    run(tmp_path, work)


def test_damaged_list_of_shards_is_not_believed(tmp_path):
    async def work(place):
        place.index.add(1000, event("payment"))
        await place.index.commit(close=True)
        place.index.blobs.blobs[place.index.state.closed.blob][3] ^= 1
        with pytest.raises(Corrupt, match="checksum"):
            await place.search()

    run(tmp_path, work)


def test_search_whose_files_are_deleted_reads_the_state_again(tmp_path):
    async def work(place):
        place.index.add(1000, event("payment"))
        await place.index.commit()
        stale = await place.family._views.view(STREAM)
        place.index.add(2000, event("payment"))
        await place.index.commit()
        for name in {file.blob for file in stale.state.growing.files}:
            del place.index.blobs.blobs[name]
        fresh = place.family._views.view
        views = [stale]

        async def view(stream):
            return views.pop() if views else await fresh(stream)

        place.family._views.view = view
        place.index.add(3000, event("payment"))
        await place.index.commit()
        # The files of before are still named by the present state: of both attempts, none succeeds.
        with pytest.raises(Unavailable, match="search again"):
            await place.search()
        assert not views

    run(tmp_path, work)


def test_searches_beyond_the_bounds_are_refused(tmp_path, monkeypatch):
    async def work(place):
        place.index.add(1000, event("payment"))
        await place.index.commit()
        assert (await place.search()).total == 1
        go_on, began = threading.Event(), threading.Semaphore(0)
        opened = place.family._searcher._copies["shard1"].opened
        real = opened.reader

        class Slow:
            def search(self, question, check):
                began.release()
                go_on.wait(HANG_SECONDS)
                assert question.keys == (order_key(1000, 0), order_key(1001, 0)), "those of all events of the shard"
                return real.search(question)

            def close(self):
                real.close()

        opened.reader = Slow()
        place.family._slots = SearchSlots(3, 2)

        async def by(user):
            current_authorized.set(Authorized(user, Permission.READ))
            return await place.search()

        tasks = [asyncio.create_task(by("alice")) for _ in range(2)]
        for _ in tasks:
            await asyncio.to_thread(began.acquire, timeout=HANG_SECONDS)
        with pytest.raises(Unavailable, match="2 searches of yours"):
            await by("alice")
        tasks.append(asyncio.create_task(by("bob")))
        await asyncio.to_thread(began.acquire, timeout=HANG_SECONDS)
        with pytest.raises(Unavailable, match="3 searches are under way"):
            await by("carol")
        go_on.set()
        assert [reply.total for reply in await asyncio.gather(*tasks)] == [1, 1, 1]
        assert place.family._slots.taken == 0
        go_on.clear()
        monkeypatch.setattr(family_module, "MAX_SEARCH_SECONDS", 0.05)
        with pytest.raises(Invalid, match="more than 0 s: give a shorter time"):
            await place.search()
        assert place.family._slots.taken == 0
        go_on.set()

    run(tmp_path, work)


# -- several controllers ----------------------------------------------------------------------------


class Cluster:
    """Controllers on the same tables, each with its searches on a port."""

    def __init__(self, place, count):
        self.place, self.count = place, count
        self.addresses, self.families, self.servers, self.listeners = [], [], [], []

    async def __aenter__(self):
        for _ in range(self.count):
            controller = await self.place.world.controller()
            family = self.place.searches(controller, lambda: self.addresses)
            listener = GrpcListener(controller.services(search=_Both(family)), 100)
            server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
            controller.advertised = ("127.0.0.1", server.sockets[0].getsockname()[1])
            self.addresses.append(controller.advertised)
            self.families.append(family)
            self.servers.append(server)
            self.listeners.append(listener)
        return self

    async def __aexit__(self, *_):
        for server, listener in zip(self.servers, self.listeners, strict=True):
            server.close()
            await listener.drain(0)

    def kept(self):
        return [0 if one._searcher is None else one._searcher.kept[0] for one in self.families]


class _Both:
    """Serves the calls of a family, and none of the other one."""

    def __init__(self, family):
        self._family = family

    def __getattr__(self, name):
        async def call(given):
            return await getattr(self._family, name)(given)

        call.__name__ = name
        return call


def grown(place):
    async def grow():
        for at in range(20):
            place.index.add(1000 * at, event(f"word{at % 4}", f"user{at % 3}"))
            await place.index.commit(close=True)
        place.index.add(30_000, event("word1"))
        await place.index.commit()

    return grow()


def test_controllers_share_the_shards_out_and_answer_as_one(tmp_path):
    async def work(place):
        await grown(place)
        async with Cluster(place, 3) as cluster:
            fields = {"bucketMs": 5000, "facets": ["user"], "limit": 4}
            alone = await place.search("word1", **fields)
            for family in cluster.families:
                reply = await family.search(request("word1", **fields))
                assert reply == alone
                assert reply.total == 6
            assert sum(cluster.kept()) == 21
            first = {f"shard{at}": holders(f"shard{at}", cluster.addresses)[0] for at in range(1, 22)}
            wanted = [sum(address == one for one in first.values()) for address in cluster.addresses]
            assert cluster.kept() == wanted
            assert all(wanted)
            # Later pages, too.
            reply = await cluster.families[0].search(request("word1", limit=4, page=alone.page))
            assert len(reply.hits) == 2

    run(tmp_path, work)


def test_controller_that_is_gone_is_done_without(tmp_path):
    async def work(place):
        await grown(place)
        async with Cluster(place, 3) as cluster:
            alone = await place.search("word1")
            cluster.servers[1].close()
            assert await cluster.families[0].search(request("word1")) == alone
            assert cluster.addresses[1] not in cluster.families[0]._others.present()
            assert cluster.kept()[1] == 0
            assert await cluster.families[0].search(request("word1")) == alone
            # A refusal of the search itself is the answer.
            with pytest.raises(Invalid, match="user"):
                await cluster.families[2].search(request("usr:alice"))

    run(tmp_path, work)


def test_controller_that_says_nothing_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setattr(other_controllers, "HOLDER_ECHO_SECONDS", 0.1)

    async def work(place):
        await grown(place)
        async with Cluster(place, 2) as cluster:
            alone = await place.search("word1")
            mute = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
            cluster.addresses.append(mute.sockets[0].getsockname())
            assert await cluster.families[0].search(request("word1")) == alone
            assert cluster.addresses[2] not in cluster.families[0]._others.present()
            mute.close()

    run(tmp_path, work)


def test_holder_checks_the_right_of_whose_search_it_is(tmp_path):
    env, seen = real_env(), []

    async def here():
        logins = Logins(env, {"ann": User("ann", hash_password("secret word"), frozenset())})
        access = Access(env, logins, lambda: TokenKeys([b"k" * 64]), 600)

        class RefusingAccess:
            async def caller(self, call, authorization, peer):
                seen.append((call, authorization))
                raise Unauthenticated("log in")

            carry_out = None

        async def searchShards(asked):
            raise AssertionError("it was not refused")

        limiter = RequestLimiter()
        path, kind, _ = SEARCH.searchShards
        listener = GrpcListener({path: rpc_handler(searchShards, kind, limiter, RefusingAccess())}, 10)
        server = await asyncio.get_running_loop().create_server(listener.connection, "127.0.0.1", 0)
        there = ("127.0.0.1", server.sockets[0].getsockname()[1])
        others = OtherControllers(lambda: [HERE, there], lambda: HERE, SimpleNamespace(own_tls=lambda: None), env.clock)
        basic = "Basic " + b64encode(b"ann:secret word").decode()
        for header, wanted in ((basic, basic), (f"Bearer {logins.own_token()}", None)):
            await access.caller("search", header, "1.2.3.4:5")
            with pytest.raises(Unavailable, match="does not answer for its shards: log in"):
                await others.ask(there, pb.SearchShardsRequest(scope="s", stream="t"))
            assert seen.pop() == ("searchShards", wanted), "the token of a process never leaves it"
        assert others.present() == sorted([HERE, there]), "it is there"
        others.close()
        server.close()
        await listener.drain(0)
        await access.close()

    asyncio.run(asyncio.wait_for(here(), HANG_SECONDS))


def test_holder_with_a_later_commit_answers_up_to_the_same_cut(tmp_path):
    async def work(place):
        place.index.add(1000, event("word"))
        await place.index.commit()
        view = await place.family._views.view(STREAM)
        asked = pb.SearchShardsRequest(
            scope="s", stream="t", commits=view.state.commits, shards=[b"shard1"], query=b"word",
            low=-(1 << 62), high=1 << 62, sort="newest", limit=10, facetLimit=10,
            until=pb.SearchCut(segments=[0], offsets=list(view.state.cut.positions.values())),
        )  # fmt: skip
        place.index.add(2000, event("word"))
        await place.index.commit()
        part = await place.family.searchShards(asked)
        assert (part.total, [hit.timeMs for hit in part.hits]) == (1, [1000])
        asked.shards.append(b"shard7")
        with pytest.raises(Unavailable, match="changed meanwhile"):
            await place.family.searchShards(asked)

    run(tmp_path, work)
