"""The calls of searches: any controller answers, with the help of those that hold the shards.

    search ─▶ the state of the index ─▶ shards by time ─▶ each one's holder: searchShards, or here ─▶ merged ─▶ a page

A holder that does not answer is left out for a while, and its part is answered here.  What is not within bounds is
refused by name: searches under way in all and of a caller, seconds, hits, buckets, facets, words of a prefix.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.controller.authorized_caller import current_authorized
from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.core.names import StreamName
from sarit.core.nearest_names import nearest
from sarit.core.texts import cut_text
from sarit.process.limits import (
    MAX_SEARCH_SECONDS,
    MAX_SHARD_HITS,
    MAX_SHARDS_ASKED,
    QUICK_CUT_BYTES,
    SEARCH_SHARDS_AT_ONCE,
)
from sarit.process.search.index_view import IndexViews
from sarit.process.search.messages import (
    answer_message,
    answer_of,
    ask_of,
    response_of,
    text_of,
)
from sarit.process.search.other_controllers import OtherControllers
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_message, cut_of
from sarit.search.answers import Ask, choose, holders, merge, page_of
from sarit.search.field_values import LEAST_KEY, MOST_KEY, order_key
from sarit.search.mapping import Kind
from sarit.search.ports import ShardAnswer, ShardQuestion
from sarit.search.query_parser import bind, fields_of, parse
from sarit.search.searcher import Searcher
from sarit.search.settings import decode_settings
from sarit.search.slots import SearchSlots
from sarit.search.statistics import SearchStatistics
from sarit.search.threads import SearchThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from sarit.admin.exposition import Sample
    from sarit.controller.assignment import Address
    from sarit.core.cuts import StreamCut
    from sarit.process.search.calls import SearchWorld, Site
    from sarit.process.search.index_view import IndexView
    from sarit.process.search.spans import Limits, Spans
    from sarit.search.mapping import Mapping
    from sarit.search.query import Query
    from sarit.search.query_parser import ParsedQuery
    from sarit.search.state import Shard


def family(world: SearchWorld) -> SearchFamily:
    """Return what serves searches."""
    if world.site is None:
        raise NotImplementedError("this process answers no searches")
    return SearchFamily(world, world.site)


T = TypeVar("T")

_ANSWERS_HELD: Final = 16
_SHOWN_CHARACTERS: Final = 80


class _Gone(Unavailable):
    """Raised for files of a shard that were deleted: a later state of the index has others."""


@dataclass(frozen=True, slots=True)
class Part:
    """A question to some shards of an index, or to some of their events.

    `parsed`: the query.  `ask`: with the limits for each shard.  `low`, `high`: order keys.  `limits`: None: all events
    are answered."""

    parsed: ParsedQuery
    ask: Ask
    low: int
    high: int
    wanted: int
    facet_values: int
    limits: Limits | None


class SearchFamily:
    """The calls `search`, `searchShards` and `searchInfo`."""

    def __init__(self, world: SearchWorld, site: Site) -> None:
        self._world = world
        self._site = site
        self._slots = SearchSlots()
        # One thread: with several that parse, the event loop would wait for each of them.
        self._parsers = SearchThreads(world.env.threads, "search-cuts", 1)
        self._statistics = SearchStatistics()
        self._searcher: Searcher | None = None
        self._making = asyncio.Lock()
        controller = world.controller
        self._views = IndexViews(controller, site.blobs)
        self._others = OtherControllers(
            world.members, lambda: controller.assignment.me, world.security, world.env.clock
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<SearchFamily, {self._slots!r}>"

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics of the searches of this controller."""
        yield "sarit_searches_running", (), self._slots.taken
        for outcome in ("found", "refused", "failed"):
            yield "sarit_searches_total", (outcome,), self._statistics.answers[outcome]
        yield "sarit_searches_seconds_total", (), self._statistics.seconds
        yield "sarit_searches_copies_bytes", (), 0 if self._searcher is None else self._searcher.kept[2]
        yield "sarit_searches_copied_bytes_total", (), 0 if self._searcher is None else self._searcher.downloaded

    async def search(self, request: pb.SearchRequest) -> pb.SearchResponse:
        """Return a page of hits.  Raises NotFound, Invalid, Corrupt, Unavailable."""
        clock, outcome = self._world.env.clock, "failed"
        begun = clock.monotonic()
        try:
            found = await self._answer(request)
            outcome = "found"
        except Invalid:
            outcome = "refused"
            raise
        finally:
            self._statistics.answers[outcome] += 1
            self._statistics.seconds += clock.monotonic() - begun
        return found

    async def _answer(self, request: pb.SearchRequest) -> pb.SearchResponse:
        stream = StreamName(request.scope, request.stream)
        with self._bounded():
            async with asyncio.timeout(MAX_SEARCH_SECONDS):
                ask = await self._parsed(len(request.page), partial(ask_of, request, stream))
                parsed = parse(ask.query)
                try:
                    return await self._search(stream, ask, parsed)
                except _Gone:  # once more: by now, the state names other files
                    return await self._search(stream, ask, parsed)

    async def _parsed(self, cut_bytes: int, parsing: Callable[[], T]) -> T:
        """Return what a caller gave, parsed.  Raises Invalid.  `cut_bytes`: of the cut in it, which may be long."""
        return parsing() if cut_bytes <= QUICK_CUT_BYTES else await self._parsers.run(parsing)

    async def searchShards(self, request: pb.SearchShardsRequest) -> pb.SearchShardsResponse:
        """Answer for some shards, of a search of another controller."""
        stream = StreamName(request.scope, request.stream)
        parsed = parse(text_of(request.query))
        ask = Ask(
            "", request.low, request.high, request.sort, 0, request.bucketMs, tuple(request.facets),
            request.facetLimit,
        ).check()  # fmt: skip
        if not 0 <= request.limit <= MAX_SHARD_HITS:
            raise Invalid(f"a shard gives at most {MAX_SHARD_HITS} hits")
        with self._bounded():
            async with asyncio.timeout(MAX_SEARCH_SECONDS):
                until: StreamCut | None = None
                if request.HasField("until"):
                    until = await self._parsed(request.until.ByteSize(), partial(cut_of, request.until, stream))
                view = await self._views.view(stream)
                by_id = {shard.id.encode(): shard for shard in view.shards}
                shards = [by_id[one] for one in dict.fromkeys(request.shards) if one in by_id]
                if len(shards) != len(request.shards):
                    raise _Gone("the index was changed meanwhile: search again")
                if view.state.commits == request.commits and until == view.state.cut:
                    until = None
                limits = await self._views.limits(stream, until)
                part = Part(parsed, ask, request.low, request.high, request.limit, request.facetLimit, limits)
                return answer_message(await self._here(view, shards, part))

    async def searchInfo(self, request: pb.SearchInfoRequest) -> pb.SearchInfoResponse:
        """Return how far the index of a stream is.  Raises NotFound, Corrupt, Unavailable."""
        stream = StreamName(request.scope, request.stream)
        job = await self._views.job(stream)
        if job is None:
            return pb.SearchInfoResponse(searchable=False)
        view, settings = await self._views.view(stream), decode_settings(job.settings)
        state = view.state
        mapping = view.shards[-1].mapping if view.shards else settings.mapping
        found = pb.SearchInfoResponse(
            searchable=True, events=state.events, shards=len(view.shards), bytes=state.stored_bytes,
            committedMs=state.committed_ms, lostBytes=state.lost_bytes, partly=state.partly, problem=job.problem,
            intervalSeconds=settings.interval_seconds, start=settings.start,
        )  # fmt: skip
        if state.cut is not None:
            found.cut.CopyFrom(cut_message(state.cut))
            found.bytesBehind = await self._views.bytes_behind(stream, state.cut)
        if mapping is not None:
            found.fields.extend(pb.SearchField(path=one.path, kind=one.kind.value) for one in mapping.fields)
            found.timeField = mapping.time_field
        return found

    async def close(self) -> None:
        """End the connections to other controllers, and remove the copies of shards."""
        self._others.close()
        await self._parsers.close()
        if self._searcher is not None:
            await self._searcher.close()

    # -- one search ---------------------------------------------------------------------------------

    async def _search(self, stream: StreamName, ask: Ask, parsed: ParsedQuery) -> pb.SearchResponse:
        view = await self._views.view(stream)
        state = view.state
        if state.cut is None:
            return pb.SearchResponse()  # the indexer has not committed anything
        _check_fields(parsed, ask, view.shards)
        until = None if ask.page is None else ask.page.cut
        low, high = ask.keys()
        chosen = choose(view.shards, low, high)
        if len(chosen) > MAX_SHARDS_ASKED:
            raise Invalid(
                f"the search is about {len(chosen)} parts of the index, and at most {MAX_SHARDS_ASKED} are asked: "
                "give a shorter time (start, end)"
            )
        limits = await self._views.limits(stream, until)
        part = Part(parsed, ask, low, high, ask.wanted, ask.facet_values, limits)
        answers = await _all(
            self._part(view, shards, part, address, until or state.cut)
            for address, shards in self._by_holder(chosen).items()
        )
        merged = merge(answers, ask.sort, ask.wanted, ask.facet_values)
        page = page_of(ask, merged, state.cut, state.committed_ms)
        committed_ms = state.committed_ms if ask.page is None else ask.page.committed_ms
        return response_of(page, until or state.cut, committed_ms, len(chosen))

    def _by_holder(self, shards: Sequence[Shard]) -> dict[Address, list[Shard]]:
        present, found = self._others.present(), dict[Any, list[Any]]()
        for shard in shards:
            found.setdefault(holders(shard.id, present)[0], []).append(shard)
        return found

    async def _part(
        self, view: IndexView, shards: Sequence[Shard], part: Part, holder: Address, until: StreamCut
    ) -> ShardAnswer:  # fmt: skip
        """Return the answer of a holder for its shards, or the same from here."""
        if holder != self._others.me:
            ask = part.ask
            request = pb.SearchShardsRequest(
                scope=view.stream.scope, stream=view.stream.stream, commits=view.state.commits,
                shards=[shard.id.encode() for shard in shards], until=cut_message(until), query=ask.query.encode(),
                low=part.low, high=part.high, sort=ask.sort, limit=part.wanted, bucketMs=ask.bucket_ms,
                facets=ask.facets, facetLimit=part.facet_values,
            )  # fmt: skip
            try:
                return answer_of(await self._others.ask(holder, request))
            except Unavailable:
                pass  # this controller can answer for any shard
        return await self._here(view, shards, part)

    async def _here(self, view: IndexView, shards: Sequence[Shard], part: Part) -> ShardAnswer:
        """Return the answer of some shards, from copies of this process."""
        searcher = await self._open()
        before = dict(zip((shard.id for shard in view.shards), (None, *view.shards), strict=False))
        queries: dict[Mapping, Query] = {}
        answers: list[ShardAnswer] = []
        left = iter(shards)

        async def work() -> None:
            for shard in left:
                spans = None if part.limits is None else part.limits.spans(before[shard.id], shard)
                if spans is not None and not spans:
                    continue
                if shard.mapping not in queries:
                    queries[shard.mapping] = bind(part.parsed, shard.mapping, unknown="nothing")
                try:
                    answers.append(
                        await searcher.search(shard, _question(part, shard, queries[shard.mapping], spans))
                    )  # fmt: skip
                except NotFound:
                    raise _Gone("the index was changed meanwhile: search again") from None
                if len(answers) >= _ANSWERS_HELD:  # merged as they come: thousands of shards give many hits
                    answers[:] = [merge(answers, part.ask.sort, part.wanted, part.facet_values)]

        await _all(work() for _ in range(SEARCH_SHARDS_AT_ONCE))
        return merge(answers, part.ask.sort, part.wanted, part.facet_values)

    async def _open(self) -> Searcher:
        async with self._making:
            if self._searcher is None:
                site, env = self._site, self._world.env
                worker = env.threads.worker("search-directory")
                try:
                    directory = await worker.run(lambda: site.directory("copies"))
                finally:
                    await worker.close()
                self._searcher = Searcher(site.engine, site.blobs, env, directory)
            return self._searcher

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Count a search during a block, and name its bounds in errors."""
        authorized = current_authorized.get()
        try:
            with self._slots.take(None if authorized is None else authorized.user):
                yield
        except TimeoutError:
            raise Invalid(
                f"the search took more than {MAX_SEARCH_SECONDS:.0f} s: give a shorter time (start, end), or more words"
            ) from None


def _question(part: Part, shard: Shard, query: Query, spans: Spans | None) -> ShardQuestion:
    keywords = {field.path for field in shard.mapping.fields if field.kind is Kind.KEYWORD}
    high = part.high if part.high < MOST_KEY else MOST_KEY + 1
    return ShardQuestion(
        query, max(part.low, LEAST_KEY), high, part.ask.sort, part.wanted, part.ask.bucket_ms,
        tuple(field for field in part.ask.facets if field in keywords), part.facet_values, spans,
        (order_key(shard.first_ms, 0), order_key(shard.last_ms, -1) + 1),
    )  # fmt: skip


def _check_fields(parsed: ParsedQuery, ask: Ask, shards: Sequence[Shard]) -> None:
    """Check that the fields of a search are known to some shard.  Raises Invalid."""
    if not shards:
        return
    mappings = {shard.mapping for shard in shards}
    kinds = {field.path: field.kind for mapping in mappings for field in mapping.fields}
    for name in sorted(fields_of(parsed)):
        if name not in kinds:
            bind(parsed, shards[-1].mapping)  # raises, with the place in the text
            raise Invalid(f"the index has no field {_shown(name)}: {nearest(name, kinds)}")
    keywords = {field.path for mapping in mappings for field in mapping.fields if field.kind is Kind.KEYWORD}
    for name in ask.facets:
        if name not in keywords:
            there = nearest(name, keywords) if keywords else "there is none"
            raise Invalid(f"{_shown(name)} is no field of keywords, whose values are counted: {there}")


def _shown(name: str) -> str:
    return ascii(cut_text(name, _SHOWN_CHARACTERS))


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that run at once.  Raises the first error, after the others were cancelled."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]
