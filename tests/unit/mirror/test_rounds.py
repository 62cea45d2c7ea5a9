"""Rounds as the copier plans them, carried out one after the other on sides in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkers.mirror import Seen, SourceHistory, check
from sarit.controller.model.epochs import first_epoch
from sarit.core.errors import Unavailable
from sarit.core.names import StreamName
from sarit.mirror.rounds import Copy, Discard, Gap, Nothing, Wrong, plan
from sarit.mirror.values import LinkIdentity, MirrorState, MirrorStatus, Offer, Position, Write
from tests.unit.mirror.memory_sides import MemorySource, MemoryTarget

if TYPE_CHECKING:
    from sarit.mirror.rounds import Plan

LINK = LinkIdentity(b"1" * 16, "link", "core")
NAME = StreamName("scope", "stream")


class Steps:
    """A copier of one stream that makes one step at a time, and forgets all at a restart."""

    def __init__(self, source: MemorySource, target: MemoryTarget, limit: int) -> None:
        self.source, self.target, self.limit = source, target, limit
        self.state: MirrorState | None = None

    async def step(self, most_writes: int = 1 << 30) -> Plan:
        """Plan a round and carry it out; killed after so many writes."""
        facts = (await self.source.facts("scope", [NAME], 0))[0]
        assert facts is not None
        if self.state is None:
            self.state = (await self.target.begin(LINK, "scope", [facts]))[0]
        assert self.state.position is not None
        try:
            offer = (await self.source.offers("scope", [self.state.position], self.limit))[0]
        except Exception:
            self.state = None
            raise
        assert offer is not None
        made = plan(self.state, facts, offer, 8)
        self_state, self.state = self.state, None
        if isinstance(made, Discard):
            await self.target.drop(LINK, "scope", [(NAME, s) for s in made.segments])
        if isinstance(made, Copy):
            for one in made.ranges:
                if most_writes <= 0:
                    return made
                most_writes -= 1
                data = (await self.source.read("scope", [one]))[0]
                write = Write(NAME, one.segment, one.offset, data, made.round is not None)
                await self.target.write(LINK, "scope", [write])
            if made.round is None:
                self.state = replace(self_state, position=made.reached)
            else:
                self.state = (await self.target.finish(LINK, "scope", [made.round]))[0]
                assert self.state.position == made.reached
        return made


EVENTS = st.binary(min_size=1, max_size=12)
SOURCE_STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), EVENTS),
    st.tuples(st.just("begin_commit"), st.dictionaries(st.integers(0, 2), EVENTS, min_size=2, max_size=3)),
    st.tuples(st.just("commit_next")),
    st.tuples(st.just("scale"), st.integers(0, 3)),
)
COPIER_STEPS = st.one_of(
    st.just(("copy",)), st.just(("copy",)), st.tuples(st.just("kill"), st.integers(0, 3)),
    st.tuples(st.just("halfway"), st.integers(0, 5)),
)  # fmt: skip


@given(
    st.integers(1, 3), st.integers(1, 40), st.lists(st.one_of(SOURCE_STEPS, SOURCE_STEPS, COPIER_STEPS), max_size=40)
)
def test_a_mirror_is_a_prefix_at_every_moment(segments: int, limit: int, steps: list[tuple]) -> None:
    """Copiers are killed between their writes, and targets within a round."""
    source = MemorySource()
    stream = source.create("scope/stream", segments)
    allowed = 1 << 30

    def step() -> None:
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise Unavailable("the target was killed")

    target = MemoryTarget(step=step)
    copier = Steps(source, target, limit)

    async def run() -> None:
        nonlocal allowed
        for kind, *args in steps:
            if kind == "copy":
                await copier.step()
            elif kind == "kill":
                await copier.step(*args)
                copier.state = None
            elif kind == "halfway":
                allowed = args[0]
                try:
                    await copier.step()
                except Unavailable:
                    copier.state = None
                allowed = 1 << 30
            else:
                getattr(stream, kind)(*args)
        stream.commit_all()
        for _ in range(200):
            if isinstance(await copier.step(), Nothing):
                return
        raise AssertionError("the copier never ends")

    asyncio.run(run())
    assert not check(stream.history(), target.mirrors[NAME].seen, caught_up=True)


def _offer(**changes: object) -> Offer:
    return replace(Offer(NAME, {0: 10}, frozenset(), {}, (), False, 1, 10, 1), **changes)  # type: ignore[arg-type]


def _plan(offer: Offer, **changes: object) -> Plan:
    source = MemorySource()
    facts = source.create("scope/stream").facts("edge", 0)
    state = replace(MirrorState(NAME, MirrorStatus.READY, Position(NAME, 0, {0: 4})), **changes)  # type: ignore[arg-type]
    return plan(state, facts, offer, 8)


def test_a_small_piece_of_one_segment_is_appended_directly() -> None:
    """A long one, or one of which something is staged already, is not."""
    made = _plan(_offer())
    assert isinstance(made, Copy)
    assert made.round is None
    assert made.length == 6
    assert made.reached == Position(NAME, 0, {0: 10})
    staged = _plan(_offer(), staged={0: 2})
    assert isinstance(staged, Copy)
    assert staged.round is not None
    assert [(r.offset, r.length) for r in staged.ranges] == [(6, 4)]
    assert (staged.length, staged.growth) == (4, 6)
    long = _plan(_offer(lengths={0: 13}))
    assert isinstance(long, Copy)
    assert long.round is not None


def test_more_is_staged_than_offered() -> None:
    """An earlier copier staged a longer round."""
    assert _plan(_offer(), staged={0: 7}) == Discard((0,))
    assert _plan(_offer(), staged={5: 1}) == Discard((5,))


def test_bytes_that_are_gone_are_a_gap() -> None:
    """The segment begins behind the mirror's end, or is gone as a whole."""
    assert _plan(_offer(starts={0: 4})) == Copy(_plan(_offer()).ranges, None, Position(NAME, 0, {0: 10}), 6)  # type: ignore[union-attr]
    assert _plan(_offer(starts={0: 7})) == Gap(3)
    assert _plan(_offer(lengths={})) == Gap(0)


@pytest.mark.parametrize(
    "offer",
    [
        _offer(lengths={0: 3}),
        _offer(lengths={0: 10, 77: 1}),
        _offer(epochs=(first_epoch(1, 0, 1),)),
        _offer(lengths={0: 10, (1 << 32) + 1: 0}, epochs=(replace(first_epoch(1, 1, 1), number=1),)),
    ],
)
def test_a_contradictory_offer_is_named(offer: Offer) -> None:
    """A hostile or broken source does not make the copier write."""
    assert isinstance(_plan(offer), Wrong)


def test_the_checker_finds_what_is_wrong() -> None:
    """One wrong mirror for each kind of violation."""
    one, two = ((0.0, 1.0, 0),), ((0.0, 1.0, (1 << 32) + 1),)
    later = (1 << 32) + 1
    source = SourceHistory({0: one, 1: two}, {0: b"abcd", later: b"ef"}, {0: 4}, [(0, {0: 2}), (0, {0: 4})])

    def seen(data: dict[int, bytes], *, last: int = 0, sealed: tuple[int, ...] = (), quiet: bool = True) -> Seen:
        epochs = {number: source.epochs[number] for number in range(last + 1)}
        return Seen(epochs, dict.fromkeys(data, 0), data, frozenset(sealed), quiet)

    def kinds(*mirrors: Seen, caught_up: bool = False) -> set[str]:
        return {one.kind for one in check(source, mirrors, caught_up=caught_up)}

    assert kinds(seen({0: b"ab"}), seen({0: b"abcd"})) == set()
    assert kinds(seen({0: b"ax"})) == {"bytes"}
    assert kinds(seen({0: b"abcde"}, quiet=False)) == {"beyond"}
    assert kinds(seen({0: b"a"})) == {"torn"}
    assert kinds(seen({0: b"ab"}, sealed=(0,))) == {"sealed"}
    assert kinds(seen({0: b"ab", later: b"e"}, last=1, quiet=False)) == {"order"}
    assert kinds(seen({0: b"abcd"}), seen({0: b"ab"})) == {"back"}
    assert kinds(seen({0: b"ab"}), caught_up=True) == {"behind"}
    assert kinds(replace(seen({0: b"ab"}), epochs={0: two})) == {"epochs"}
