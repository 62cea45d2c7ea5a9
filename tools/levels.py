"""How the modules of a package import each other, read from their source: levels and circles.

A module is one `.py` file.  `a` imports `b` when an import statement of `a`, at any place in it, names `b` or something
in `b`.  `from package import name` means the module `package.name` where there is one, else `package/__init__.py`; that
Python also runs `__init__.py` of all folders above is not counted, as nobody who reads the code goes there.  Files
below a folder `generated` are left out.

A circle is a largest set of modules each of which reaches each other one by imports.

A level is one module or, where modules import each other in a circle, the whole circle: they can only be understood
together.  A chain of levels is a way down from importer to imported among the modules of one package; its length is
counted in levels, so that a package whose modules do not import each other has a chain of 1.

The view of one folder counts its modules, and each folder in it as one module, as a directory listing shows them.  Its
longest chain is what a reader follows without leaving the folder.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    Graph = Mapping[str, AbstractSet[str]]  # importer -> what it imports; every name is a key

Level = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Imports:
    """Two graphs over the same modules: without the imports under `if TYPE_CHECKING`, and with them."""

    runtime: Graph
    all: Graph


def module_name(root: Path, path: Path) -> str:
    """The dotted name of a file in the package whose folder is `root`: `sarit.store.state`."""
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_counted(root: Path, path: Path) -> bool:
    """Whether a file was written by people."""
    return path.suffix == ".py" and "generated" not in path.relative_to(root).parts


def read_imports(root: Path) -> Imports:
    """The imports among all modules below the package folder `root`."""
    paths = {module_name(root, path): path for path in sorted(root.rglob("*.py")) if is_counted(root, path)}
    runtime: dict[str, set[str]] = {}
    both: dict[str, set[str]] = {}
    for name, path in paths.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        found = [
            (target, typing)
            for node, typing in _imports(ast.parse(path.read_text()))
            for target in _names(node, package)
        ]
        known = [(_module(target, paths), typing) for target, typing in found]
        both[name] = {target for target, _ in known if target} - {name}
        runtime[name] = {target for target, typing in known if target and not typing} - {name}
    return Imports(runtime, both)


def _imports(node: ast.AST, typing: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Each import statement below `node`, and whether only type checkers carry it out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, typing
        elif isinstance(child, ast.If) and _says_type_checking(child.test):
            yield from _imports(ast.Module(child.body, []), True)
            yield from _imports(ast.Module(child.orelse, []), typing)
        elif not isinstance(child, ast.expr):  # only statements hold statements
            yield from _imports(child, typing)


def _says_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def _names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """The dotted names that a statement in a module of `package` asks for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
    yield from (f"{base}.{alias.name}" for alias in node.names)


def _module(name: str, known: Mapping[str, Path]) -> str | None:
    """The module that a dotted name is or lies in; None when it is none of ours."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def within(graph: Graph, package: str) -> Graph:
    """The part of a graph that lies in a package, itself included."""
    inside = {name for name in graph if name == package or name.startswith(f"{package}.")}
    return {name: graph[name] & inside for name in sorted(inside)}


def by_folder(graph: Graph, packages: AbstractSet[str]) -> Graph:
    """The graph of the folders that modules lie in; `packages`: the modules that are a folder's `__init__.py`."""
    folder = {name: name if name in packages else name.rpartition(".")[0] for name in graph}
    found: dict[str, set[str]] = {name: set() for name in folder.values()}
    for name, targets in graph.items():
        found[folder[name]] |= {folder[target] for target in targets} - {folder[name]}
    return found


def one_folder(graph: Graph, folder: str) -> Graph:
    """The graph of one folder's modules and of its folders, each of these as one name; `graph` may hold more."""
    inside = within(graph, folder)
    depth = folder.count(".") + 2
    seen = {name: ".".join(name.split(".")[:depth]) for name in inside}
    found: dict[str, set[str]] = {name: set() for name in seen.values()}
    for name, targets in inside.items():
        found[seen[name]] |= {seen[target] for target in targets} - {seen[name]}
    return found


def packages_of(graph: Graph) -> set[str]:
    """The modules that have modules below them."""
    found: set[str] = set()
    for name in graph:
        while (name := name.rpartition(".")[0]) and name not in found:
            found.add(name)
    return found & graph.keys()


def _levels(graph: Graph) -> dict[str, Level]:
    """The level of every name: itself, or all names of its circle, sorted."""
    importers: dict[str, list[str]] = {name: [] for name in graph}
    for name, targets in graph.items():
        for target in targets:
            importers[target].append(name)
    level: dict[str, Level] = {}
    for name in reversed(_imported_first(graph)):
        if name not in level:  # what reaches the name, and was not reached by an earlier one, is in its circle
            circle, todo = {name}, [name]
            while todo:
                new = [other for other in importers[todo.pop()] if other not in level and other not in circle]
                circle.update(new)
                todo += new
            level.update(dict.fromkeys(circle, tuple(sorted(circle))))
    return level


def _imported_first(graph: Graph) -> list[str]:
    """Return the names in the order in which a search in depth leaves them."""
    seen: set[str] = set()
    order: list[str] = []
    for first in graph:
        ways = [] if first in seen else [(first, iter(graph[first]))]
        seen.add(first)
        while ways:
            _, targets = ways[-1]
            following = next((target for target in targets if target not in seen), None)
            if following is None:
                order.append(ways.pop()[0])
            else:
                seen.add(following)
                ways.append((following, iter(graph[following])))
    return order


def circles(graph: Graph) -> list[Level]:
    """All circles, the longest first."""
    found = {level for level in _levels(graph).values() if len(level) > 1}
    return sorted(found, key=lambda level: (-len(level), level))


def longest_chain(graph: Graph) -> list[Level]:
    """The longest chain of levels, importers first; of several the first by name."""
    level = _levels(graph)
    below: dict[Level, set[Level]] = {found: set() for found in level.values()}
    for name, targets in graph.items():
        below[level[name]] |= {level[target] for target in targets} - {level[name]}
    chains: dict[Level, list[Level]] = {}
    for found in TopologicalSorter(below).static_order():
        chains[found] = [found, *min((chains[under] for under in below[found]), key=_longest_first, default=[])]
    return min(chains.values(), key=_longest_first, default=[])


def _longest_first(chain: list[Level]) -> tuple[int, list[Level]]:
    return -len(chain), chain
