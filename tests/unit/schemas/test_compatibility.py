"""Levels and policies of compatibility: which versions are compared, in which direction."""

import itertools

import pytest

from sarit.core.errors import Invalid
from sarit.schemas.compatibility import Level, Policy, PolicyName, Span, Till, is_level, level_of, policy_of, refusals
from sarit.schemas.limits import MAX_INCOMPATIBILITIES

HISTORY = [(1, {"a"}), (2, {"a", "b"}), (4, {"a", "b", "c"})]


def lacking(reader, writer):
    """Return what a writer's schema, here a set, has beyond a reader's."""
    return sorted(writer - reader)


@pytest.mark.parametrize(
    ("level", "new", "refused_by"),
    [
        (Level.NONE, set(), []),
        (Level.BACKWARD, {"a", "b", "c"}, []),
        (Level.BACKWARD, {"b", "c"}, [4]),
        (Level.BACKWARD_TRANSITIVE, {"b", "c", "d"}, [4, 2, 1]),
        (Level.BACKWARD_TRANSITIVE, {"a", "b", "c", "d"}, []),
        (Level.FORWARD, {"a", "b", "c"}, []),
        (Level.FORWARD, {"c", "d"}, [4]),
        (Level.FORWARD_TRANSITIVE, {"a", "b"}, [1]),
        (Level.FORWARD_TRANSITIVE, {"a"}, []),
        (Level.FULL, {"a", "b", "c"}, []),
        (Level.FULL, {"a", "b"}, [4]),
        (Level.FULL, {"a", "b", "c", "d"}, [4]),
        (Level.FULL_TRANSITIVE, {"a", "b", "c"}, [2, 1, 1]),
    ],
)
def test_level_compares_its_versions_in_its_directions(level, new, refused_by):
    reasons = refusals(level, new, HISTORY, lacking)
    assert [int(one.split("version ")[1][0]) for one in reasons] == refused_by


def advanced(backward=None, forward=None):
    return Policy(PolicyName.ADVANCED, backward, forward)


LATEST, EVERY = Span.LATEST, Span.EVERY


@pytest.mark.parametrize(
    ("policy", "new", "refused_by"),
    [
        (Policy(PolicyName.ALLOW_ANY), set(), []),
        (Policy(PolicyName.BACKWARD_TRANSITIVE), {"b", "c", "d"}, [4, 2, 1]),
        (Policy(PolicyName.FULL), {"a", "b"}, [4]),
        (advanced(LATEST), {"b", "c"}, [4]),
        (advanced(EVERY), {"b", "c"}, [4, 2, 1]),
        (advanced(Till(2)), {"b", "c"}, [4, 2]),
        (advanced(Till(3)), {"b", "c"}, [4]),
        (advanced(Till(5)), {"b", "c"}, []),
        (advanced(Till(0)), {"b", "c"}, [4, 2, 1]),
        (advanced(forward=LATEST), {"c", "d"}, [4]),
        (advanced(forward=EVERY), {"c", "d"}, [4, 2, 2, 1, 1]),
        (advanced(forward=Till(2)), {"c", "d"}, [4, 2, 2]),
        # Each direction has its own versions: the new schema does not read version 2 either, which is not asked.
        (advanced(LATEST, Till(2)), {"b", "c"}, [4, 2]),
        (advanced(Till(2), LATEST), {"b", "c", "d"}, [4, 4, 2]),
        (advanced(EVERY, LATEST), {"b", "c", "d"}, [4, 4, 2, 1]),
    ],
)
def test_policy_compares_its_versions_in_its_directions(policy, new, refused_by):
    reasons = refusals(policy, new, HISTORY, lacking)
    assert [int(one.split("version ")[1][0]) for one in reasons] == refused_by


def test_deny_all_allows_the_first_schema_alone():
    policy = Policy(PolicyName.DENY_ALL)
    assert refusals(policy, {"a"}, [], lacking) == []
    assert refusals(policy, {"a"}, [(1, {"a"})], lacking) == ["the policy DenyAll allows no schema after the first"]


@pytest.mark.parametrize("name", list(PolicyName))
def test_policy_with_directions_is_the_advanced_one_alone(name):
    given = {} if name is PolicyName.ADVANCED else {"forward": LATEST}
    with pytest.raises(Invalid, match="Advanced"):
        Policy(name, **given)


@pytest.mark.parametrize("level", list(Level))
def test_each_level_is_a_policy(level):
    assert is_level(policy_of(level))
    assert level_of(policy_of(level)) is level
    assert policy_of(level).name.value.upper() == level.value.replace("_", "").replace("NONE", "ALLOWANY")


@pytest.mark.parametrize(
    ("policy", "level", "exact"),
    [
        (Policy(PolicyName.DENY_ALL), Level.FULL_TRANSITIVE, False),
        (advanced(LATEST), Level.BACKWARD, True),
        (advanced(EVERY), Level.BACKWARD_TRANSITIVE, True),
        (advanced(Till(2)), Level.BACKWARD_TRANSITIVE, False),
        (advanced(forward=LATEST), Level.FORWARD, True),
        (advanced(forward=EVERY), Level.FORWARD_TRANSITIVE, True),
        (advanced(forward=Till(2)), Level.FORWARD_TRANSITIVE, False),
        (advanced(LATEST, LATEST), Level.FULL, True),
        (advanced(EVERY, EVERY), Level.FULL_TRANSITIVE, True),
        (advanced(LATEST, EVERY), Level.FULL_TRANSITIVE, False),
        (advanced(Till(2), LATEST), Level.FULL_TRANSITIVE, False),
        (advanced(Till(2), Till(2)), Level.FULL_TRANSITIVE, False),
    ],
)
def test_level_of_a_policy_is_the_same_or_the_nearest_stricter(policy, level, exact):
    assert level_of(policy) is level
    assert is_level(policy) is exact


def test_level_of_a_policy_refuses_whatever_the_policy_refuses():
    spans = (None, LATEST, EVERY, Till(1), Till(2), Till(4), Till(9))
    schemas = [set(one) for size in range(4) for one in itertools.combinations("abcd", size)]
    for backward, forward in itertools.product(spans, repeat=2):
        if backward or forward:
            policy = advanced(backward, forward)
            for new in schemas:
                by_policy = refusals(policy, new, HISTORY, lacking)
                by_level = refusals(level_of(policy), new, HISTORY, lacking)
                assert set(by_policy) <= set(by_level)
                assert by_policy == by_level or not is_level(policy)


def test_sentences_say_who_does_not_read_whom():
    assert refusals(Level.FULL, {"x"}, [(3, {"y"})], lacking) == [
        "the new schema does not read version 3: y", "version 3 does not read the new schema: x",
    ]  # fmt: skip


@pytest.mark.parametrize("level", list(Level))
def test_first_schema_is_always_allowed(level):
    assert refusals(level, {"a"}, [], lacking) == []


def test_no_version_is_compared_after_enough_sentences():
    compared = []

    def refuse(reader, writer):
        compared.append(writer)
        return ["why"]

    history = [(version, {version}) for version in range(1, 10_000)]
    reasons = refusals(Level.BACKWARD_TRANSITIVE, set(), history, refuse)
    assert len(reasons) == len(compared) == MAX_INCOMPATIBILITIES
