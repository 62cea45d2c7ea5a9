"""Assignment: properties that hold for all maps and members, and the rules by example."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sarit.coordination.assign import Recent, assign
from sarit.coordination.container_map import ContainerMap, StoreAddress

LONG_AGO = Recent(-1000.0)
NOW = 0.0


def store(name: str, **given) -> StoreAddress:
    return StoreAddress("10.0.0.1", 1, given.pop("machine", name), given.pop("incarnation", 1), **given)


def stores(names, **given) -> dict[str, StoreAddress]:
    return {name: store(name, **given) for name in names}


def owned(owners, **given) -> ContainerMap:
    members = stores(sorted({owner for owner in owners if owner} | set(given.pop("also", ()))))
    return ContainerMap(1, members, tuple(owners), **given)


def counts(record: ContainerMap) -> Counter:
    return Counter(record.owners)


members_of_any_kind = st.dictionaries(
    st.sampled_from("abcdefg"),
    st.builds(
        StoreAddress, st.just("h"), st.just(1), st.sampled_from(["m1", "m2", "m3"]), st.integers(1, 2),
        st.integers(0, 3), st.booleans(),
    ),
    max_size=6,
)  # fmt: skip


@st.composite
def cases(draw):
    """A map that some earlier call may have left, and the members now."""
    known, members = draw(members_of_any_kind), draw(members_of_any_kind)
    owner = st.sampled_from([None, *sorted(known)])
    owners = draw(st.lists(owner, min_size=1, max_size=20))
    moving = {}
    if known:
        sources = draw(st.dictionaries(st.integers(0, len(owners) - 1), st.sampled_from(sorted(known)), max_size=4))
        moving = {number: source for number, source in sources.items() if owners[number] not in (None, source)}
    recent = Recent(
        draw(st.sampled_from([-1000.0, -5.0])),
        draw(st.dictionaries(st.integers(0, len(owners) - 1), st.sampled_from([-100.0, -30.0, -5.0]), max_size=8)),
    )
    return ContainerMap(draw(st.integers(1, 9)), known, tuple(owners), moving), members, recent


@given(cases())
def test_every_container_has_a_living_owner_while_a_store_is_usable(case):
    current, members, recent = case
    after = assign(current, members, recent, NOW)
    assert len(after.owners) == len(current.owners)
    assert after.stores == members
    assert set(after.owners) - {None} <= set(members)
    assert set(after.moving.values()) <= set(members)
    if any(member.usable for member in members.values()):
        assert all(owner is not None or number in after.moving for number, owner in enumerate(after.owners))
    for number, source in after.moving.items():
        assert after.owners[number] != source


@given(cases())
def test_second_call_changes_nothing(case):
    current, members, recent = case
    after = assign(current, members, recent, NOW)
    assert assign(after, members, recent.after(current, after, NOW), NOW) is after


def test_second_call_changes_nothing_when_a_leaving_store_has_another_machine():
    """Which of two equally full stores is on another machine must not depend on what the map said before."""
    current = ContainerMap(1, {"g": store("g", machine="m1", weight=0)}, ("g", "g", "g"))
    members = {
        "a": store("a", machine="m2", weight=3), "b": store("b", machine="m1", weight=1),
        "g": store("g", machine="m2", weight=0),
    }  # fmt: skip
    after = assign(current, members, LONG_AGO, NOW)
    assert assign(after, members, LONG_AGO.after(current, after, NOW), NOW) is after


@given(cases(), st.randoms(use_true_random=False))
def test_result_does_not_depend_on_the_order_of_members(case, rng):
    current, members, recent = case
    mixed = list(members.items())
    rng.shuffle(mixed)
    assert assign(current, dict(mixed), recent, NOW) == assign(current, members, recent, NOW)


@given(cases())
def test_version_rises_by_one_exactly_when_something_changes(case):
    current, members, recent = case
    after = assign(current, members, recent, NOW)
    same = (after.stores, after.owners, after.moving) == (current.stores, current.owners, current.moving)
    assert after.version == current.version + (not same)
    assert (after is current) == same


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=24), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_moves_are_the_orphans_and_what_balance_needs(owners, living):
    """Equal weights: run until nothing changes, releasing every move, and count how often a container changed place."""
    current, members, now = owned(owners), stores(sorted(living)), NOW
    changes = Counter()
    recent = Recent(now - 1000)
    while True:
        after = assign(current, members, recent, now)
        changes.update(n for n, owner in enumerate(after.owners) if owner != current.owners[n])
        if after is current:
            break
        assert sum(changes.values()) <= 2 * len(owners), "it moves containers without end"
        recent = Recent(now - 1000)  # as if minutes lay between two moves
        current = ContainerMap(after.version, after.stores, after.owners)
    after_all = counts(current)
    assert max(after_all[name] for name in living) - min(after_all[name] for name in living) <= 1
    orphans = sum(owner not in living for owner in owners)
    kept = Counter(owner for owner in owners if owner in living)
    # The fewest changes: the fullest stores get the larger parts.
    small, larger = divmod(len(owners), len(living))
    best = sorted((kept[name] for name in living), reverse=True)
    surplus = sum(max(0, have - small - (place < larger)) for place, have in enumerate(best))
    assert sum(changes.values()) == orphans + surplus
    assert max(changes.values(), default=0) <= 1


def test_orphans_go_to_the_store_with_the_fewest_containers():
    current = owned(["a", "a", "b", "b", "b", "c", "x", "x"])
    after = assign(current, stores("abc"), Recent(NOW), NOW)
    assert counts(after) == {"a": 3, "b": 3, "c": 2}
    assert after.owners[:6] == current.owners[:6]
    assert not after.moving


@pytest.mark.parametrize(("machine", "expected"), [("m1", "b"), ("m2", "a")])
def test_orphans_prefer_another_machine_among_equals(machine, expected):
    members = {"a": store("a", machine="m1"), "b": store("b", machine="m2")}
    current = ContainerMap(1, {**members, "x": store("x", machine=machine)}, ("x",))
    assert assign(current, members, LONG_AGO, NOW).owners == (expected,)


def test_weights_divide_the_containers():
    members = {"a": store("a", weight=1), "b": store("b", weight=3)}
    after = assign(ContainerMap.empty(8), members, LONG_AGO, NOW)
    assert counts(after) == {"a": 2, "b": 6}


def test_store_that_joins_gets_its_part_two_moves_at_a_time():
    current, members = owned(["a"] * 6 + ["b"] * 6, also="c"), stores("abc")
    after = assign(current, members, LONG_AGO, NOW)
    assert len(after.moving) == 2
    assert counts(after) == {"a": 5, "b": 5, "c": 2}
    assert all(after.owners[number] == "c" for number in after.moving)
    assert {after.moving[number] for number in after.moving} == {"a", "b"}


def test_nothing_is_balanced_shortly_after_a_death_or_join():
    current, members = owned(["a"] * 6, also="b"), stores("ab")
    assert assign(current, members, Recent(NOW - 9.9), NOW) is current
    assert assign(current, members, Recent(NOW - 10.0), NOW).moving


def test_container_that_moved_within_the_last_minute_stays():
    current, members = owned(["a", "a", "a"], also="b"), stores("ab")
    recent = Recent(-1000.0, {0: NOW - 59, 1: NOW - 59, 2: NOW - 61})
    assert set(assign(current, members, recent, NOW).moving) == {2}


@pytest.mark.parametrize("change", [{"leaving": True}, {"weight": 0}])
def test_store_that_leaves_gives_all_its_containers_away_four_at_a_time_and_two_to_a_target(change):
    current = owned(["a"] * 6 + ["b", "c"])
    members = {**stores("bc"), "a": store("a", **change)}
    after = assign(current, members, Recent(NOW), NOW)
    assert set(after.moving.values()) == {"a"}
    assert Counter(after.owners[number] for number in after.moving) == {"b": 2, "c": 2}
    after = assign(ContainerMap(9, after.stores, after.owners), members, Recent(NOW), NOW)
    assert counts(after) == {"b": 4, "c": 4}


def test_moves_wait_until_their_targets_have_opened_what_moved():
    """A store that was given all at once opened them one after the other, and the last writer waited for all."""
    current = owned(["a"] * 6 + ["b", "b"], also="c")
    members = {"a": store("a", leaving=True), "b": store("b", opening=2), "c": store("c", opening=1)}
    after = assign(current, members, Recent(NOW), NOW)
    assert [after.owners[number] for number in after.moving] == ["c"]
    assert not any(address.opening for address in after.stores.values())
    # What moves to a store is among what it opens or is about to open.
    members["c"] = store("c", opening=2)
    assert assign(after, members, Recent(NOW), NOW) is after
    members["b"], members["c"] = store("b", opening=1), store("c")
    assert len(assign(after, members, Recent(NOW), NOW).moving) == 3


def test_change_of_what_a_store_opens_is_no_change_of_the_map():
    current = owned(["a", "b"])
    members = {"a": store("a", opening=7), "b": store("b")}
    assert assign(current, members, LONG_AGO, NOW) is current


def test_last_store_keeps_its_containers_while_it_leaves():
    members = {"a": store("a", leaving=True)}
    assert assign(owned(["a", "a"]), members, LONG_AGO, NOW).owners == ("a", "a")


def test_move_ends_when_its_source_dies():
    current = owned(["b", "b"], also="a", moving={0: "a"})
    assert assign(current, stores("b"), Recent(NOW), NOW).moving == {}
    assert assign(current, stores("b"), Recent(NOW), NOW).owners == ("b", "b")


def test_move_ends_when_its_source_has_started_again():
    current = owned(["b", "b"], also="a", moving={0: "a"})
    members = {"a": store("a", incarnation=2), "b": store("b")}
    assert assign(current, members, Recent(NOW), NOW).moving == {}


def test_source_keeps_the_container_when_the_target_dies():
    current = owned(["b", "a"], moving={0: "a"})
    after = assign(current, stores("a"), Recent(NOW), NOW)
    assert (after.owners, after.moving) == (("a", "a"), {})


def test_source_that_does_not_release_is_revoked_and_loses_the_container_after_a_lease():
    current, members = owned(["b", "a"], moving={0: "a"}), stores("ab")
    assert assign(current, members, Recent(-1000.0, {0: NOW - 19.9}), NOW) is current
    revoked = assign(current, members, Recent(-1000.0, {0: NOW - 20}), NOW)
    assert (revoked.owners, revoked.moving) == ((None, "a"), {0: "a"})
    recent = Recent(-1000.0, {0: NOW - 20}).after(current, revoked, NOW)
    assert assign(revoked, members, recent, NOW + 5.9) is revoked
    assert assign(revoked, members, recent, NOW + 6).owners == ("b", "a")
    released = revoked.released(0, "a")
    assert assign(released, members, recent, NOW + 0.1).owners == ("b", "a")


def test_store_that_started_again_keeps_its_containers():
    current = owned(["a", "b"])
    members = {"a": store("a", incarnation=2), "b": store("b")}
    after = assign(current, members, LONG_AGO, NOW)
    assert after.owners == current.owners
    assert after.stores["a"].incarnation == 2
    assert after.version == current.version + 1


def test_recent_notes_joins_deaths_and_changed_owners():
    before = owned(["a", "b", None], also="c")
    same = ContainerMap(2, before.stores, ("a", "c", "c"))
    assert Recent(-5.0).after(before, same, NOW) == Recent(-5.0, {1: NOW})
    gone = ContainerMap(2, stores("ac"), ("a", "a", "c"))
    assert Recent(-5.0).after(before, gone, NOW).changed_at == NOW
    again = ContainerMap(2, {**before.stores, "a": store("a", incarnation=2)}, before.owners)
    assert Recent(-5.0).after(before, again, NOW).changed_at == NOW
    # A leader that starts finds a move under way: it times it from now on.
    moving = owned(["a", "b"], moving={1: "a"})
    assert Recent(-5.0).after(moving, moving, NOW).moved_at == {1: NOW}
    assert Recent(-5.0, {1: -3.0}).after(moving, moving, NOW).moved_at == {1: -3.0}
