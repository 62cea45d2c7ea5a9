"""Write the map of rooms and the table of ports in ARCHITECTURE.md, from the import rule and the code.

python -m tools.architecture_page            write them
python -m tools.architecture_page --check    exit 1 when the page is stale
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "ARCHITECTURE.md"
PACKAGE: Final = ROOT / "src" / "sarit"
PORT_FILES: Final = ("port.py", "ports.py")
# A protocol of fewer methods would find classes that have nothing to do with it.
LEAST_METHODS: Final = 3


class Definition(NamedTuple):
    """A class: where it is, the names of its bases, and its methods."""

    path: str
    name: str
    bases: tuple[str, ...]
    methods: frozenset[str]


def import_rule() -> list[list[str]]:
    """Return the rooms from the top down, those of one floor together, as import-linter checks them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = [one for one in settings["tool"]["importlinter"]["contracts"] if one["id"] == "layers"]
    floors = [layer.replace(":", "|").split("|") for layer in contract["layers"]]
    return [[package.strip().strip("()").removeprefix("sarit.") for package in floor] for floor in floors]


def purpose(package: str) -> str:
    """Return the first line of a package's docstring."""
    source = PACKAGE / package / "__init__.py"
    docstring = ast.get_docstring(ast.parse(source.read_text()))
    assert docstring, f"{source.relative_to(ROOT)}: say in a docstring what the room is for"
    return docstring.partition("\n")[0].rstrip(".")


def rooms() -> str:
    """Return the map: a row for each room, from the top down."""
    rule = import_rule()
    listed = {package for floor in rule for package in floor}
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert listed == there, f"the contract `layers` in pyproject.toml and the folders differ: {sorted(listed ^ there)}"
    rows = []
    for number, floor in zip(range(len(rule), 0, -1), rule, strict=True):
        for package in floor:
            inside = sorted(path.parent.name for path in (PACKAGE / package).glob("*/__init__.py"))
            parts = ", ".join(name for name in inside if name != "generated")
            rows.append(f"| {number} | `{package}/` | {purpose(package)} | {parts} |")
    return "\n".join(["| floor | room | what | rooms inside |", "|---|---|---|---|", *rows])


def _methods(node: ast.ClassDef) -> frozenset[str]:
    functions = (item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(item.name for item in functions if not item.name.startswith("_"))


def definitions() -> Iterator[Definition]:
    """Yield every class of the package and of the simulation."""
    for folder in (PACKAGE, ROOT / "simulation"):
        for path in sorted(folder.rglob("*.py")):
            if "generated" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                    place = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()
                    yield Definition(place, node.name, bases, _methods(node))


def implementations(port: Definition, classes: list[Definition]) -> list[Definition]:
    """Return the classes that have all methods of a port, by themselves or by their bases."""
    by_name = {one.name: one for one in classes}

    def methods(one: Definition) -> frozenset[str]:
        inherited = [methods(by_name[base]) for base in one.bases if base in by_name and base != one.name]
        return one.methods.union(*inherited)

    return [one for one in classes if "Protocol" not in one.bases and port.methods <= methods(one)]


def ports() -> str:
    """Return the table of ports: the protocols of the files `port.py`, each with what implements it."""
    classes = list(definitions())
    rows = []
    for port in classes:
        if Path(port.path).name in PORT_FILES and "Protocol" in port.bases and len(port.methods) >= LEAST_METHODS:
            found = ", ".join(f"`{one.name}` ({one.path})" for one in implementations(port, classes))
            assert found, f"nothing implements {port.name} of {port.path}"
            rows.append(f"| `{port.name}` ({port.path}) | {found} |")
    return "\n".join(["| port | implementations |", "|---|---|", *rows])


def page() -> str:
    """Return the whole page as it should be."""
    text = PAGE.read_text()
    for name, table in (("rooms", rooms()), ("ports", ports())):
        begin, end = f"<!-- {name}: make generate -->\n", f"\n<!-- end of {name} -->"
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(end)
        assert found, f"{PAGE.name} lacks the mark at the beginning of {name}"
        assert ended, f"{PAGE.name} lacks the mark at the end of {name}"
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


def main() -> None:
    """Write the page, or check it."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            sys.exit("ARCHITECTURE.md is stale: run make generate")
        return
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
