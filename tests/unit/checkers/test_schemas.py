"""The model of a group of schemas, and the check of ids, accept right histories and reject wrong ones."""

from __future__ import annotations

from math import inf
from typing import Any

from checkers.register import UNKNOWN, Call, search
from checkers.schemas import DELETED, DONE, MISSING, NOT_DELETED, GroupOfSchemas, check_ids

Made = tuple[tuple[Any, ...], Any]


def calls_of(made: tuple[Made, ...]) -> list[Call]:
    """Calls one after the other, each an action and its answer."""
    return [
        Call("p", "a", action, answer, 2.0 * at, inf if answer is UNKNOWN else 2.0 * at + 1)
        for at, (action, answer) in enumerate(made)
    ]


def holds(*made: Made) -> bool:
    return search(calls_of(made), GroupOfSchemas()) is None


def kinds(*made: Made) -> list[str]:
    return [violation.kind for violation in check_ids(calls_of(made))]


def register(schema: str, number: int = 0, version: int = 0) -> Made:
    return ("register", schema), ((schema, number, version),) if number else UNKNOWN


def versions(*shown: tuple[str, int, int]) -> Made:
    return ("versions",), shown or MISSING


def delete(version: int, answer: str = DONE, *, permanent: bool = False) -> Made:
    return ("delete", version, permanent), answer


def find(schema: str, answer: Any = MISSING) -> Made:
    return ("find", schema), answer


GONE = (register("x", 1, 1), delete(1), delete(1, permanent=True))


def test_schema_has_one_version_and_one_id_in_a_group() -> None:
    assert holds(register("x", 1, 1), register("y", 2, 2), register("x", 1, 1))
    assert not holds(register("x", 1, 1), register("x", 1, 2))
    assert not holds(register("x", 1, 1), register("x", 2, 1))


def test_version_never_returns() -> None:
    assert holds(*GONE, register("x", 2, 2))
    assert not holds(*GONE, register("x", 2, 1))


def test_softly_deleted_version_keeps_its_id_and_not_its_place() -> None:
    before = (register("x", 1, 1), delete(1))
    assert holds(*before, versions(), register("x", 1, 2), versions(("x", 1, 2)))
    assert not holds(*before, register("x", 2, 2))
    assert not holds(*before, register("x", 1, 1))
    assert not holds(*before, versions(("x", 1, 1)))


def test_unknown_registration_may_have_happened() -> None:
    assert holds(register("x"), versions(("x", 7, 1)), register("y", 8, 2))
    assert holds(register("x"), versions())
    assert not holds(register("x"), versions(("x", 7, 1)), versions()), "it went again"


def test_acknowledged_registration_is_found() -> None:
    assert not holds(register("x", 1, 1), versions())
    assert not holds(register("x", 1, 1), find("x"))
    assert holds(register("x", 1, 1), find("x", (("x", 1, 1),)), find("y"))


def test_deletions_are_soft_first() -> None:
    first, second = register("x", 1, 1), register("y", 2, 2)
    assert holds(first, delete(1, NOT_DELETED, permanent=True))
    assert holds(first, second, delete(1), delete(1, DELETED))
    assert holds(first, delete(1), delete(1, MISSING)), "its group is deleted"
    assert holds(first, (("delete group", False), DONE), (("delete group", True), DONE), versions())
    assert holds(first, (("delete group", True), NOT_DELETED))
    assert not holds(first, delete(1, permanent=True))
    assert holds(delete(1, MISSING), (("delete group", False), MISSING))


def test_id_is_of_one_schema_for_ever() -> None:
    assert kinds(register("x", 1, 1), register("y", 2, 2), (("schema", 1), "x")) == []
    assert kinds(register("x", 1, 1), register("y", 1, 2)) == ["id-of-two"]
    assert kinds(*GONE, register("y", 1, 2)) == ["id-of-two"]
    assert kinds(register("x", 1, 1), (("schema", 1), "y")) == ["id-of-two"]


def test_schema_has_another_id_after_a_permanent_deletion_alone() -> None:
    assert kinds(register("x", 1, 1), register("x", 2, 1)) == ["two-ids"]
    assert kinds(*GONE, register("x", 2, 2)) == []
    assert kinds(register("x", 1, 1), delete(1), register("x", 2, 2)) == ["two-ids"]
    unknown = (("delete", 1, True), UNKNOWN)
    assert kinds(register("x", 1, 1), delete(1), unknown, register("x", 2, 2)) == []
    assert kinds(*GONE, (("schema", 1), "x"), register("x", 2, 2), versions(("x", 2, 2))) == []


def test_id_resolves_until_a_permanent_deletion_begins() -> None:
    assert kinds(register("x", 1, 1), delete(1), (("schema", 1), MISSING)) == ["id-gone"]
    assert kinds(*GONE, (("schema", 1), MISSING)) == []
