"""The state machine of a writer's session: its table, and what each move gives up."""

import asyncio
from types import SimpleNamespace

import pytest

from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.segment import Attribute
from sarit.store.container.state import WrongEventNumber
from sarit.store.container.writer_session import TRANSITIONS, Event, State, WriterSession, fence_owner
from sarit.wire.frames import Append
from tests.unit.store.harness import SMALL, WRITER, Replies, World, Writer

SEGMENT = "s/t/0.#epoch.0"
ENDS = {State.REPLACED, State.MISSING, State.REFUSED, State.CLOSED}


def open_session():
    """A session that owns an attribute of a segment."""
    segment, attribute = SimpleNamespace(pins=0), Attribute(7)
    session = WriterSession(WRITER, Replies())
    session.set_up(SimpleNamespace(), segment, attribute)
    return session, segment, attribute


def in_state(state):
    """A session in `state`, by the shortest way."""
    ways = {State.SETTING_UP: []}
    while state not in ways:
        for (before, event), after in TRANSITIONS.items():
            if before in ways:
                ways.setdefault(after, [*ways[before], event])
    session, segment, attribute = WriterSession(WRITER, Replies()), SimpleNamespace(pins=0), Attribute(7)
    for event in ways[state]:
        happen(session, event, segment, attribute)
    return session, segment, attribute


def happen(session, event, segment, attribute):
    if event is Event.SET_UP:
        session.set_up(SimpleNamespace(), segment, attribute)
    else:
        session._move(event)


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_each_event_in_each_state_follows_the_table_or_is_a_bug(state, event):
    session, segment, attribute = in_state(state)
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(AssertionError):
            happen(session, event, segment, attribute)
        return
    happen(session, event, segment, attribute)
    assert session.state is after
    session.check()
    owns = after is State.OPEN
    assert (segment.pins, attribute.owner) == ((1, session) if owns else (0, None))


def test_no_event_leaves_an_end_state():
    assert {after for (before, _), after in TRANSITIONS.items() if before in ENDS} <= ENDS


def test_leaving_open_gives_up_attribute_and_pin_once():
    session, segment, attribute = open_session()
    fence_owner(attribute)
    successor = WriterSession(WRITER, Replies())
    successor.set_up(SimpleNamespace(), segment, attribute)
    session.replace()
    session.close()
    assert (segment.pins, attribute.owner) == (1, successor), "those of the next session stay"
    successor.check()


def test_set_up_finds_the_last_number_also_when_it_is_replaced():
    session = WriterSession(WRITER, Replies())
    assert session.last == NULL_ATTRIBUTE_VALUE
    session.replace()
    session.set_up(SimpleNamespace(), SimpleNamespace(pins=0), Attribute(7))
    assert session.last == 7
    assert not session.is_open


def test_appends_during_the_set_up_are_pending_in_order():
    session = WriterSession(WRITER, Replies())
    first, second = (Append(WRITER, [b"x"], 1, 1, number, 0) for number in (1, 2))
    session.append(first)
    session.append(second, 5)
    assert session.pending == [(first, None), (second, 5)]
    assert session.unanswered == 0


def test_fenced_session_is_refused_after_its_appends_in_flight():
    async def main():
        store = await World(SMALL).start()
        await store.container(SEGMENT).create(SEGMENT)
        first, second = Writer(store, SEGMENT), Writer(store, SEGMENT)
        await first.set_up()
        first.append(b"in flight", 1)
        setting_up = asyncio.ensure_future(second.set_up())
        while first.session.is_open:
            await asyncio.sleep(0)
        assert first.session.state is State.FENCED
        first.append(b"late", 2)
        assert await setting_up == 1
        assert [number for number, _, _ in first.replies.acknowledgements] == [1]
        assert [type(error) for error in first.replies.errors] == [WrongEventNumber]
        assert first.session.unanswered == 0
        second.session.check()
        await store.stop()

    asyncio.run(main())
