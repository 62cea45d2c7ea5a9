"""The short form of `make mirror-kills`, and what its own checks find."""

from __future__ import annotations

import asyncio
import random

import pytest

from sarit.core.links import LinkDirection
from tests.limits import FULL, HANG_SECONDS
from tests.mirror.kills import NAMES, Load, Plan, halves, parsed, payloads, run
from tests.mirror.nodes import Whole

CUTS, KILLS = (100, 40) if FULL else (5, 4)
PADDING = b"." * 180


@pytest.mark.parametrize("direction", [LinkDirection.PUSH, pytest.param(LinkDirection.PULL, marks=pytest.mark.long)])
def test_mirror_is_the_source_after_cuts_and_kills(tmp_path, direction):
    plan = Plan(seed=1, cuts=CUTS, kills=KILLS, direction=direction)
    result = asyncio.run(asyncio.wait_for(run(tmp_path, plan), 4 * HANG_SECONDS))
    assert result.violations == []
    assert result.struck.total() == CUTS + KILLS
    assert result.broken
    assert result.scales
    assert result.comparisons > len(NAMES)
    assert min(result.events, result.transactions) > 10


def transaction(number, index, size):
    return b"t%08d/%02d/%02d" % (number, index, size) + PADDING


def test_half_a_transaction_and_half_an_event_are_found():
    whole = [transaction(1, index, 3) for index in range(3)]
    assert list(halves(NAMES[0], [*whole, b"e00000007" + PADDING])) == []
    assert [one.kind for one in halves(NAMES[0], whole[:2])] == ["half"]
    assert [one.kind for one in halves(NAMES[0], [*whole, whole[0]])] == ["half"]
    data = b"".join(bytes(4) + len(event).to_bytes(4, "big") + event for event in whole)
    assert list(payloads(Whole(b"", (), {0: (0, data)}, False))) == whole
    with pytest.raises(ValueError, match="no event at"):
        list(payloads(Whole(b"", (), {0: (0, data[:-1])}, False)))


def test_what_was_acknowledged_and_is_missing_is_found():
    load = Load(None, NAMES[0], random.Random(0))
    load.written, load.committed, load.aborted = 2, {1: 1}, {2}
    events = [b"e%08d" % number + PADDING for number in range(2)]
    assert list(load.check([*events, transaction(1, 0, 1)])) == []
    assert [one.kind for one in load.check([events[0], transaction(1, 0, 1)])] == ["lost"]
    assert [one.kind for one in load.check(events)] == ["lost"]
    assert [one.kind for one in load.check([*events, transaction(1, 0, 1), transaction(2, 0, 1)])] == ["aborted"]
    assert parsed(events)[0].total() == 2
