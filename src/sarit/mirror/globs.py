"""Globs of SCOPE/STREAM: `*` is any characters but "/", also none, and `?` is one.

Which stream a link copies, which class it has, and whether two links can have a stream in common, is decided here.  No
glob takes longer than its length times that of the name: globs come from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.names import MARK_PREFIX, SYSTEM_SCOPE, is_internal_name

if TYPE_CHECKING:
    from sarit.core.links import LinkSettings
    from sarit.core.names import StreamName

_ANY: Final = "*"
_ONE: Final = "?"


def is_glob(text: str) -> bool:
    """Return whether a text is a glob of SCOPE/STREAM that some user's stream can match."""
    scope, slash, stream = text.partition("/")
    named = scope.replace(_ANY, "x").replace(_ONE, "x"), stream.replace(_ANY, "x").replace(_ONE, "x")
    return bool(slash) and all(is_internal_name(name) for name in named) and not text.startswith("_")


def matches(glob: str, text: str) -> bool:
    """Return whether a glob matches a name SCOPE/STREAM.

    It also compares globs: one that matches the text of another matches all that the other one matches."""
    at = since = 0
    star = -1  # where the last `*` of the glob is; `since`: up to where the text was taken for it
    for_text = 0
    while for_text < len(text):
        one = text[for_text]
        if at < len(glob) and glob[at] == _ANY:
            star, since, at = at, for_text, at + 1
        elif at < len(glob) and (glob[at] == one or (glob[at] == _ONE and one not in "/*")):
            at, for_text = at + 1, for_text + 1
        elif star >= 0 and text[since] != "/":
            since += 1
            at, for_text = star + 1, since
        else:
            return False
    return all(rest == _ANY for rest in glob[at:])


def meet(one: str, other: str) -> bool:
    """Return whether a name can match both globs."""
    # `reached[i]`: a name can have matched the first i characters of `one`, and those of `other` seen so far.
    reached = _after_stars(one, [True] + [False] * len(one))
    for char in other:
        following = [False] * (len(one) + 1)
        for at, can in enumerate(reached):
            if not can:
                continue
            if char == _ANY:  # a star is nothing, or what `one` asks for, but never a "/"
                end = at
                while not following[end]:
                    following[end] = True
                    if end == len(one) or one[end] == "/":
                        break
                    end += 1
            elif at < len(one):
                mine = one[at]
                if mine == _ANY and char != "/":
                    following[at] = True
                elif mine == char or (_ONE in (mine, char) and "/" not in (mine, char)):
                    following[at + 1] = True
        reached = _after_stars(one, following)
    return reached[len(one)]


def _after_stars(glob: str, reached: list[bool]) -> list[bool]:
    for at, char in enumerate(glob):
        if reached[at] and char == _ANY:
            reached[at + 1] = True
    return reached


def chooses(settings: LinkSettings, name: StreamName) -> bool:
    """Return whether a link copies a stream.  A stream of watermarks goes with the stream that it is about."""
    if name.scope == SYSTEM_SCOPE:
        return False
    text = f"{name.scope}/{name.stream.removeprefix(MARK_PREFIX)}"
    if name.stream.startswith("_") and not name.stream.startswith(MARK_PREFIX):
        return False
    return any(matches(glob, text) for glob in settings.include) and not any(
        matches(glob, text) for glob in settings.exclude
    )


def may_choose_in(settings: LinkSettings, scope: str) -> bool:
    """Return whether a link can copy streams of a scope."""
    if scope == SYSTEM_SCOPE:
        return False
    return any(matches(glob.partition("/")[0], scope) for glob in settings.include)


def priority(settings: LinkSettings, name: StreamName) -> int:
    """Return the priority class of a stream."""
    text = f"{name.scope}/{name.stream.removeprefix(MARK_PREFIX)}"
    return next((level for glob, level in settings.priorities if matches(glob, text)), 0)


def common(one: LinkSettings, other: LinkSettings) -> tuple[str, str] | None:
    """Return a glob of each of two links that can choose the same stream; None: they have none in common."""
    for mine in one.include:
        if any(matches(glob, mine) for glob in other.exclude):
            continue
        for theirs in other.include:
            if not any(matches(glob, theirs) for glob in one.exclude) and meet(mine, theirs):
                return mine, theirs
    return None
