"""How long the way through the code is, in figures that the house rules hold: `make trace`.

Two parts: which modules and functions an act runs through (`acts.py` says what the acts are, `crossings.py` what is
counted), and how many levels of modules import each other (`levels.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sarit
from tools import levels
from tools.levels import circles, longest_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tools.crossings import Way
    from tools.levels import Graph, Imports, Level

ROOT: Final = Path(sarit.__file__).parent
STORE: Final = f"{ROOT.name}.store"
# Act -> figure -> the goal, and the bound that `--check` holds: lower the bound whenever the figure has become smaller.
ON_THE_WAY: Final = {
    "write": {"modules": (20, 25), "crossings": (60, 64)},
    "tail read": {"modules": (30, 37)},
    "scale": {"modules": (40, 82)},
}
LEVELS: Final = {STORE: (7, 8)}
CIRCLES: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure, the most it should be, and the most it may be."""

    name: str
    figure: int
    most: int
    bound: int

    def __str__(self) -> str:
        verdict = "reached" if self.reached else f"MISSED, bound <= {self.bound}{'' if self.held else ' BROKEN'}"
        return f"{self.name:<34} {self.figure:>5}   goal <= {self.most:<3} {verdict}"

    @property
    def reached(self) -> bool:
        """Return whether the figure is as small as it should be."""
        return self.figure <= self.most

    @property
    def held(self) -> bool:
        """Return whether the figure is no larger than it may be."""
        return self.figure <= self.bound


@dataclass(frozen=True, slots=True)
class Chains:
    """The longest chains of one package, and its circles of folders."""

    runtime: list[Level]
    all: list[Level]
    folders: list[Level]
    flat: list[Level]  # the longest in one folder, whose folders count as one module each
    folder_circles: list[Level]


def _short(name: str) -> str:
    return name.removeprefix(f"{ROOT.name}.")


def chains_of(imports: Imports, package: str) -> Chains:
    """What is counted for a package: chains by imports at run time, by all imports, and of folders by all imports."""
    packages = levels.packages_of(imports.all)
    folders = levels.by_folder(levels.within(imports.all, package), packages)
    inside = sorted(name for name in packages if name == package or name.startswith(f"{package}."))
    chains = [longest_chain(levels.one_folder(imports.all, name)) for name in inside]
    return Chains(
        longest_chain(levels.within(imports.runtime, package)),
        longest_chain(levels.within(imports.all, package)),
        longest_chain(folders),
        max(chains, key=len, default=[]),
        circles(folders),
    )


def goals_of(ways: dict[str, Way], chains: dict[str, Chains], found: Sequence[Level]) -> list[Goal]:
    """The goals for what was measured."""
    goals = [
        Goal(f"{act}: {figure}", ways[act].figures()[figure], *most)
        for act, bounds in ON_THE_WAY.items()
        if act in ways
        for figure, most in bounds.items()
    ]
    goals += [Goal(f"{name}: levels in one folder", len(chains[name].flat), *most) for name, most in LEVELS.items()]
    return [*goals, Goal(f"{ROOT.name}: import circles", len(found), *CIRCLES)]


# -- for people -----------------------------------------------------------------------------------


def _ways_text(ways: dict[str, Way], verbose: bool) -> Iterable[str]:
    for at, (act, way) in enumerate(ways.items()):
        figures = way.figures()
        if not at:
            yield f"{'':<12}" + "".join(f"{name:>12}" for name in figures)
        yield f"{act:<12}" + "".join(f"{figure:>12,}" for figure in figures.values())
    if verbose:
        for act, way in ways.items():
            yield from _way_text(act, way)


def _way_text(act: str, way: Way) -> Iterable[str]:
    into = Counter(step.function.module for step in way.crossings())
    yield f"\n{act}: how often each module was entered, and crossed into"
    yield from (f"  {_short(name):<40} {times:>6,} {into[name]:>6,}" for name, times in sorted(way.modules().items()))
    yield f"\n{act}: crossings in order"
    for (caller, function), same in groupby((step.caller, step.function) for step in way.crossings()):
        times = len(list(same))
        yield f"  {_short(str(caller))} -> {_short(str(function))}" + (f"  ({times} times)" if times > 1 else "")


def _levels_text(imports: Imports, chains: dict[str, Chains], found: list[Level], verbose: bool) -> Iterable[str]:
    yield f"\n{'levels of the longest chain':<32}{'run time':>10}{'all imports':>14}{'folders':>10}{'one folder':>12}"
    for package, chain in chains.items():
        yield f"{package:<32}{len(chain.runtime):>10}{len(chain.all):>14}{len(chain.folders):>10}{len(chain.flat):>12}"
    if verbose:
        for package, chain in chains.items():
            found_chains = {"run time": chain.runtime, "all imports": chain.all, "folders": chain.folders}
            for name, those in {**found_chains, "the folder with most levels": chain.flat}.items():
                yield f"\n{package}: chain by {name}"
                yield from (f"  {at:>2}  {_level_text(level)}" for at, level in enumerate(those, 1))
    yield f"\nimport circles among all modules: {len(found)}"
    for circle in found:
        yield from (f"  {line}" for line in _circle_text(imports, circle))
    for package, chain in chains.items():
        yield from (f"circle of folders in {package}: {_level_text(circle)}" for circle in chain.folder_circles)


def _level_text(level: Level) -> str:
    return " <-> ".join(map(_short, level))


def _circle_text(imports: Imports, circle: Level) -> Iterable[str]:
    yield _level_text(circle)
    for name in circle:
        for target in sorted(imports.all[name] & set(circle)):
            how = "" if target in imports.runtime[name] else "  (for types)"
            yield f"  {_short(name)} imports {_short(target)}{how}"


# -- for machines ---------------------------------------------------------------------------------


def _as_json(
    ways: dict[str, Way], chains: dict[str, Chains], found: list[Level], goals: list[Goal], verbose: bool
) -> dict[str, Any]:
    acts: dict[str, Any] = {act: way.figures() for act, way in ways.items()}
    if verbose:
        for act, way in ways.items():
            acts[act]["entered"] = dict(sorted(way.modules().items()))
            acts[act]["sequence"] = [[str(step.caller), str(step.function)] for step in way.crossings()]
    return {
        "acts": acts,
        "chains": {package: asdict(chain) for package, chain in chains.items()},
        "circles": found,
        "goals": [{**asdict(goal), "reached": goal.reached} for goal in goals],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.trace", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--static", action="store_true", help="only the imports; start no node")
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="how often to do each act; the quietest counts"
    )
    parser.add_argument(
        "--package", action="append", default=[], metavar="NAME",
        help=f"chains of this package besides {STORE}, as {ROOT.name}.client; 'all': of each; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true", help="list the modules and crossings of each act, and the chains"
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bound is broken")
    return parser


def _measure(repeats: int) -> dict[str, Way]:
    from tools.acts import measure  # not above: imports are counted even when the code is too broken for a node

    return measure(ROOT, repeats)


def _packages(asked: list[str], graph: Graph) -> list[str]:
    """The packages to examine, the store first.  Exits when there is none of that name."""
    tops = [name for name in sorted(levels.packages_of(graph)) if name.count(".") == 1]
    wanted = [STORE, *(name for ask in asked for name in (tops if ask == "all" else [ask]))]
    for name in wanted:
        if name not in graph:
            sys.exit(f"there is no package {name}; there are {', '.join(tops)}")
    return list(dict.fromkeys(wanted))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print; the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.repeats < 1:
        parser.error("--repeats: 1 or more")
    imports = levels.read_imports(ROOT)
    chains = {name: chains_of(imports, name) for name in _packages(asked.package, imports.all)}
    found = circles(imports.all)
    ways = {} if asked.static else _measure(asked.repeats)
    goals = goals_of(ways, chains, found)
    if asked.json:
        print(json.dumps(_as_json(ways, chains, found, goals, asked.verbose), indent=1))
    else:
        lines = [*_ways_text(ways, asked.verbose), *_levels_text(imports, chains, found, asked.verbose), ""]
        print("\n".join([*lines, *map(str, goals)]))
    return int(asked.check and not all(goal.held for goal in goals))


if __name__ == "__main__":
    sys.exit(main())
