"""Where bounds, intervals and sizes are written: in `limits.py` of the package that reads them, each name once."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.test_tidy import ROOT, SOURCE, _modules

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = "src/sarit/process/settings.py"
LIMITS = "limits.py"
MAX_CORE_BOUNDS = 60


_CONSTANT = re.compile(r"(?:[A-Z0-9_]*_)?(SECONDS|BYTES|MS)")


def literal_constants(source: str) -> Iterator[str]:
    """Names of module constants in seconds, bytes or milliseconds that are made of numbers alone."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        numbers = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.expr_context
        parts = [
            part
            for part in ast.walk(value)
            if not isinstance(part, numbers) and not (isinstance(part, ast.Name) and part.id in {"KIB", "MIB"})
        ]
        if _CONSTANT.fullmatch(name) and not parts:
            yield name


def test_sizes_and_times_are_in_limits_or_settings() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: move {name} to limits.py of the package that reads it"
        for path in _modules("src")
        if path.name != LIMITS and path.relative_to(ROOT).as_posix() != SETTINGS
        for name in literal_constants(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_bounds_have_one_name_and_one_place() -> None:
    places: dict[str, list[str]] = {}
    for path in _modules("src"):
        if path.name == LIMITS:
            for name in re.findall(r"^([A-Z][A-Z0-9_]*): Final", path.read_text(), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    # Units, and numbers of formats and of the wire that packages read which do not import each other.
    assert sum(where == ["src/sarit/core/limits.py"] for where in places.values()) <= MAX_CORE_BOUNDS


_IMPORT = re.compile(r"^ *from sarit\.([\w.]+)\.limits import (\([^)]*\)|[^\n#]*)", re.MULTILINE)
_BOUND = re.compile(r"[A-Z][A-Z0-9_]+")


def test_bounds_are_in_the_package_that_reads_them() -> None:
    packages: dict[tuple[str, str], set[str]] = {}
    for path in _modules("src/sarit"):
        for place, names in _IMPORT.findall(path.read_text()):
            for name in _BOUND.findall(names):
                packages.setdefault((place, name), set()).add(path.relative_to(SOURCE).parts[1])
    wrong = [
        f"{name} of {place}: only {package}/ reads it"
        for (place, name), (package, *others) in packages.items()
        if not others and package != place.partition(".")[0] and name not in {"KIB", "MIB"}
    ]
    assert len(packages) > 300
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("A_SECONDS: Final = 1.5", ["A_SECONDS"]),
        ("_B_BYTES = 4 * KIB", ["_B_BYTES"]),
        ("C_MS = -(1 << 3)", ["C_MS"]),
        ("D_BYTES: Final = _HEADER.size", []),
        ("E_BYTES = D_BYTES + 1", []),
        ("SEGMENTS = 4", []),
        ("def f(x_seconds=1.0):\n    Y_SECONDS = 2", []),
    ],
)
def test_a_literal_constant_is_recognized(source: str, names: list[str]) -> None:
    assert list(literal_constants(source)) == names
