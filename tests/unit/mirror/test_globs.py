"""Globs of SCOPE/STREAM, compared with what all short names say."""

import itertools
import random
import re

import pytest

from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import StreamName
from sarit.mirror.globs import chooses, common, is_glob, matches, may_choose_in, meet, priority

WORDS = ["".join(word) for length in (1, 2, 3, 4) for word in itertools.product("ab", repeat=length)]
NAMES = [f"{scope}/{stream}" for scope in WORDS for stream in WORDS]


def by_expression(glob: str, name: str) -> bool:
    pattern = "".join({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)) for char in glob)
    return re.fullmatch(pattern, name) is not None


def globs(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    parts = ["".join(chance.choices("ab*?", (2, 2, 3, 1), k=chance.randint(1, 4))) for _ in range(2 * count)]
    return [f"{parts[at]}/{parts[at + 1]}" for at in range(0, 2 * count, 2)]


def settings(*include: str, exclude: tuple[str, ...] = (), **others) -> LinkSettings:
    return LinkSettings(LinkDirection.PUSH, "core:9090", include=include, exclude=exclude, **others)


@pytest.mark.parametrize("seed", range(5))
def test_a_glob_matches_as_the_regular_expression_does(seed: int) -> None:
    for glob in globs(seed, 100):
        for name in NAMES:
            assert matches(glob, name) == by_expression(glob, name), (glob, name)


def test_two_globs_meet_exactly_if_a_name_matches_both() -> None:
    found = globs(1, 100)
    matched = {glob: {name for name in NAMES if by_expression(glob, name)} for glob in found}
    for one, other in itertools.product(found, found):
        if matched[one] & matched[other]:
            assert meet(one, other), (one, other)
        elif meet(one, other):  # by a name that is longer than those
            assert "*" in one + other, (one, other)
            assert meet(other, one), (one, other)
    assert not meet("a/*", "b/*")
    assert not meet("a*/x", "a/y")
    assert not meet("a/b*", "a/a?")
    assert meet("*/a", "b/*")
    assert meet("a*b/*", "*c*/?")
    assert not meet("a/b", "a?b")


def test_a_glob_contains_another_one_only_if_it_matches_all_its_names() -> None:
    found = globs(2, 100)
    matched = {glob: {name for name in NAMES if by_expression(glob, name)} for glob in found}
    contained = [(one, other) for one in found for other in found if matches(one, other)]
    assert len(contained) > len(found)
    assert [pair for pair in contained if not matched[pair[1]] <= matched[pair[0]]] == []


def test_a_hostile_glob_takes_no_exponential_time() -> None:
    glob, name = "a/" + "*a" * 250 + "b", "a/" + "a" * 500
    assert not matches(glob, name)
    assert not meet(glob, "a/" + "*a" * 250 + "c")


def test_names_that_no_user_can_give_are_no_globs() -> None:
    assert all(map(is_glob, ("*/*", "a/b", "a.b-c/?x*", "*/_MARKx")))
    assert not any(map(is_glob, ("", "a", "a/", "/a", "a/b/c", "_system/*", "a b/c", "a/[b]", "ä/*", "a/" + "b" * 300)))


def test_a_link_chooses_streams_and_their_watermarks_and_no_internal_ones() -> None:
    chosen = settings("factory/*", "lab/x?", exclude=("factory/tmp*",))
    yes = ("factory/a", "factory/_MARKa", "lab/x1")
    no = ("factory/tmp1", "factory/_MARKtmp1", "factory/_RGreaders", "lab/x", "_system/_link-a", "other/a")
    assert [name for name in (*yes, *no) if chooses(chosen, StreamName.parse(name))] == list(yes)
    assert not chooses(settings("*/*"), StreamName("_system", "a"))
    assert may_choose_in(chosen, "lab")
    assert not may_choose_in(chosen, "la")
    assert not may_choose_in(chosen, "_system")


def test_the_first_priority_that_matches_counts() -> None:
    chosen = settings("*/*", priorities=(("a/urgent*", 9), ("a/*", -1)))
    assert [priority(chosen, StreamName("a", name)) for name in ("urgent1", "x", "_MARKurgent1")] == [9, -1, 9]
    assert priority(chosen, StreamName("b", "x")) == 0


def test_links_have_a_stream_in_common_unless_one_excludes_it() -> None:
    assert common(settings("a/*"), settings("b/*", "*/x")) == ("a/*", "*/x")
    assert common(settings("a/*"), settings("b/*")) is None
    assert common(settings("a/*", exclude=("a/x*",)), settings("a/x1", "a/x*y")) is None
    assert common(settings("a/x1"), settings("*/*", exclude=("a/*",))) is None
    assert common(settings("a/*", exclude=("a/x?",)), settings("a/x*")) == ("a/*", "a/x*")
