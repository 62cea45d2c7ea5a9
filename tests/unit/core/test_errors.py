"""Kinds of errors that are also errors of Python."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest

from sarit.core import errors
from sarit.core.errors import Invalid, NotFound, SaritError, TimedOut, Truncated, Unavailable, Unreachable
from sarit.core.names import StreamName

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
OF_PYTHON = {Invalid: ValueError, NotFound: LookupError, Unreachable: ConnectionError, TimedOut: TimeoutError}
KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, SaritError)]


@pytest.mark.parametrize("kind", OF_PYTHON)
def test_kind_is_the_error_of_python_too(kind) -> None:
    with pytest.raises(OF_PYTHON[kind], match="^what to do$") as raised:
        raise kind("what to do")
    assert isinstance(raised.value, SaritError)
    assert str(raised.value) == "what to do"


def test_no_other_kind_is_an_error_of_python() -> None:
    """An `except OSError` around a file must not catch damage, and so on."""
    builtin = (ValueError, LookupError, OSError, TypeError, RuntimeError)
    assert {kind for kind in KINDS if issubclass(kind, builtin)} == set(OF_PYTHON)


def test_kinds_of_python_are_kinds_of_before() -> None:
    assert issubclass(Unreachable, Unavailable)
    assert issubclass(TimedOut, Unavailable)
    with pytest.raises(ValueError, match="SCOPE/STREAM"):
        StreamName.parse("none")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_can_be_pickled(kind) -> None:
    """One of a worker process that could not be read again broke the pool."""
    error = kind("text", 7) if kind is Truncated else kind("text")
    error.note = "kept"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, "text", vars(error))


def test_page_has_a_row_for_each_kind() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", PAGE.read_text(), re.MULTILINE))
    public = [kind for kind in KINDS if kind not in (SaritError, errors.Moved)]
    assert {
        kind.__name__: OF_PYTHON[kind].__name__ if kind in OF_PYTHON else "" for kind in public
    }.items() <= rows.items()
