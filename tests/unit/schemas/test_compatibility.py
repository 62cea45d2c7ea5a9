"""Levels of compatibility: which versions are compared, in which direction."""

import pytest

from sarit.schemas.compatibility import Level, refusals
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
