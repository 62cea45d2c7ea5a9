"""Table histories made by hand."""

from __future__ import annotations

from checkers.table import ABSENT, ANY, Read, TableHistory, Update, check

INFINITE = float("inf")


def kinds(*operations) -> set[str]:
    history = TableHistory()
    for operation in operations:
        (history.updates if isinstance(operation, Update) else history.reads).append(operation)
    return {violation.kind for violation in check(history)}


def put(value: bytes, expected: int, version: int | None, begun: float, ended: float, *, refused=False) -> Update:
    return Update(b"k", value, expected, version, begun, ended, refused)


def saw(value: bytes, version: int, begun: float, ended: float) -> Read:
    return Read(b"k", value, version, begun, ended)


def test_good_history_passes() -> None:
    assert not kinds(
        saw(b"", ABSENT, 0, 1),
        put(b"a", ABSENT, 10, 1, 2),
        put(b"b", 10, 20, 3, 4),
        put(b"c", 10, None, 3, 4, refused=True),
        put(b"d", ANY, 30, 5, 8),
        saw(b"b", 20, 6, 7),
        saw(b"d", 30, 6, 7.5),
    )


def test_update_of_unknown_outcome_may_appear_later_or_never() -> None:
    unknown = put(b"b", 10, None, 3, INFINITE)
    assert not kinds(put(b"a", ABSENT, 10, 1, 2), unknown, saw(b"a", 10, 4, 5), saw(b"b", 20, 8, 9))
    assert not kinds(put(b"a", ABSENT, 10, 1, 2), unknown, saw(b"a", 10, 8, 9))


def test_one_version_for_two_values_is_found() -> None:
    assert "version" in kinds(put(b"a", ABSENT, 10, 1, 2), put(b"b", ANY, 10, 3, 4))


def test_one_value_with_two_versions_is_found() -> None:
    assert "version" in kinds(put(b"a", ABSENT, 10, 1, 2), saw(b"a", 11, 3, 4))


def test_version_not_above_expected_is_found() -> None:
    assert "version" in kinds(put(b"a", 10, 10, 1, 2))


def test_value_nobody_wrote_is_phantom() -> None:
    assert "phantom" in kinds(saw(b"z", 10, 1, 2))


def test_refused_value_is_phantom() -> None:
    assert "phantom" in kinds(put(b"a", ABSENT, None, 1, 2, refused=True), saw(b"a", 10, 3, 4))


def test_value_read_before_its_update_is_phantom() -> None:
    assert "phantom" in kinds(put(b"a", ABSENT, 10, 5, 6), saw(b"a", 10, 1, 2))


def test_two_successful_updates_of_one_version_are_found() -> None:
    assert "lost-update" in kinds(put(b"a", ABSENT, 10, 1, 2), put(b"b", 10, 20, 3, 4), put(b"c", 10, 30, 3, 4))


def test_two_successful_creations_are_found() -> None:
    assert "lost-update" in kinds(put(b"a", ABSENT, 10, 1, 2), put(b"b", ABSENT, 20, 1, 2))


def test_old_value_after_newer_acknowledgement_is_stale() -> None:
    assert kinds(put(b"a", ABSENT, 10, 1, 2), put(b"b", 10, 20, 3, 4), saw(b"a", 10, 5, 6)) == {"stale"}


def test_absence_after_acknowledgement_is_stale() -> None:
    assert kinds(put(b"a", ABSENT, 10, 1, 2), saw(b"", ABSENT, 3, 4)) == {"stale"}


def test_old_value_after_newer_read_is_stale() -> None:
    assert "stale" in kinds(
        put(b"a", ABSENT, 10, 1, 2), put(b"b", 10, None, 3, INFINITE), saw(b"b", 20, 4, 5), saw(b"a", 10, 6, 7)
    )


def test_update_below_acknowledged_version_is_stale() -> None:
    assert "stale" in kinds(put(b"a", ABSENT, 30, 1, 2), put(b"b", ANY, 20, 3, 4))
