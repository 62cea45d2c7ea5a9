"""When the lease of a taken item has ended, as one observer sees it."""

from __future__ import annotations

import random

from sarit.client.structures.leases import Leases


def test_lease_ends_after_polls_for_a_whole_lease_at_one_version() -> None:
    leases = Leases(10.0)
    assert not leases.ended(b"a", 1, 100.0)
    assert not leases.ended(b"a", 1, 104.0)
    assert not leases.ended(b"a", 1, 109.0)
    assert leases.ended(b"a", 1, 110.0)
    assert not leases.ended(b"a", 2, 111.0), "it was renewed, or taken again"
    assert not leases.ended(b"a", 2, 115.0)


def test_observer_that_was_stopped_itself_does_not_take_at_once() -> None:
    leases = Leases(10.0)
    assert not leases.ended(b"a", 1, 100.0)
    assert not leases.ended(b"a", 1, 100_000.0), "only half a lease of the pause counts"
    assert leases.ended(b"a", 1, 200_000.0)


def test_poll_that_ends_early_keeps_what_it_did_not_reach() -> None:
    """An item behind others that come all the time is handed out again, too."""
    leases = Leases(10.0)
    for second in range(100, 110, 4):
        assert not leases.ended(b"late", 1, second)
    assert not leases.ended(b"early", 1, 109.0)  # and the poll ended there
    assert leases.ended(b"late", 1, 112.0)


def test_items_that_are_not_taken_any_more_are_forgotten() -> None:
    leases = Leases(10.0)
    leases.ended(b"a", 1, 100.0)
    leases.ended(b"b", 1, 100.0)
    leases.ended(b"b", 1, 101.0)
    leases.swept(101.0)
    assert len(leases) == 1
    leases.forget(b"b")
    leases.forget(b"none")
    assert len(leases) == 0
    for number in range(20):
        leases.ended(b"%d" % number, 1, float(number))
    leases.keep(5)
    assert len(leases) == 5
    assert not leases.ended(b"0", 1, 10.0), "the oldest ones were forgotten"


def test_taker_that_renews_in_time_keeps_its_item() -> None:
    """However many poll how often, as long as the clocks run at one rate."""
    rng = random.Random(1)
    for _ in range(300):
        lease = rng.uniform(0.5, 60)
        renewed = sorted(rng.uniform(0, 10 * lease) for _ in range(rng.randrange(60)))
        leases, now = Leases(lease), 1e9 + rng.random()
        begun = now
        while now < begun + 10 * lease:
            version = sum(begun + at <= now for at in renewed)
            since = max([0.0, *(at for at in renewed if begun + at <= now)])
            if leases.ended(b"a", version, now):
                assert now - begun - since >= lease * 0.999
                break
            now += rng.uniform(0, lease / 3)
