"""`make trace`: levels and circles of a toy package, and steps through two toy modules."""

import asyncio
import importlib
import sys
import threading

import pytest

from tools import levels, trace
from tools.crossings import Recorder, Way, quietest

TREE = {
    "__init__.py": "",
    "top.py": "import toy.box\nfrom toy import middle\nimport os.path\n",
    "middle.py": "def later():\n    from .box.low import thing\n",
    "box/__init__.py": "from .low import thing\n",
    "box/low.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.base import kind\nthing = 1\n",
    "base.py": "kind = int\n",
    "generated/base.py": "from toy import top\n",
}
# middle <-> base, for types alone: low is the way from one to the other.
CIRCLE = (
    "import typing\nif typing.TYPE_CHECKING:\n    from .middle import later\nelse:\n    import toy.deep\nkind = int\n"
)


def write(folder, tree):
    root = folder / "toy"
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_chain_counts_levels_with_and_without_imports_for_types(tmp_path):
    imports = levels.read_imports(write(tmp_path, TREE))
    assert levels.longest_chain(imports.runtime) == [("toy.top",), ("toy.box",), ("toy.box.low",)]
    assert levels.longest_chain(imports.all) == [("toy.top",), ("toy.box",), ("toy.box.low",), ("toy.base",)]
    assert levels.longest_chain(levels.within(imports.all, "toy.box")) == [("toy.box",), ("toy.box.low",)]
    assert imports.all["toy.top"] == {"toy.box", "toy.middle"}
    assert levels.circles(imports.all) == []


def test_a_circle_is_one_level(tmp_path):
    imports = levels.read_imports(write(tmp_path, {**TREE, "base.py": CIRCLE, "deep.py": ""}))
    circle = ("toy.base", "toy.box.low", "toy.middle")
    assert levels.circles(imports.all) == [circle]
    assert levels.circles(imports.runtime) == []
    assert levels.longest_chain(imports.all) == [("toy.top",), ("toy.box",), circle, ("toy.deep",)]
    assert imports.runtime["toy.base"] == {"toy.deep"}


def test_folders_have_chains_and_circles_too(tmp_path):
    imports = levels.read_imports(write(tmp_path, TREE))
    chains = trace.chains_of(imports, "toy")
    assert chains.folders == chains.folder_circles == [("toy", "toy.box")]
    imports = levels.read_imports(write(tmp_path, {"base.py": "", "box/low.py": "", "deep/end.py": "import toy.box"}))
    chains = trace.chains_of(imports, "toy")
    assert chains.folders == [("toy",), ("toy.box",)]
    assert chains.folder_circles == []


def test_chain_in_a_folder_counts_each_subfolder_as_one_module(tmp_path):
    tree = {
        "__init__.py": "",
        "top.py": "import toy.box.a",
        "box/__init__.py": "",
        "box/a.py": "import toy.box.b",
        "box/b.py": "import toy.box.c",
        "box/c.py": "",
    }
    imports = levels.read_imports(write(tmp_path, tree))
    assert len(levels.longest_chain(imports.all)) == 4
    assert levels.longest_chain(levels.one_folder(imports.all, "toy")) == [("toy.top",), ("toy.box",)]
    chain = [("toy.box.a",), ("toy.box.b",), ("toy.box.c",)]
    assert (
        trace.chains_of(imports, "toy").flat == levels.longest_chain(levels.one_folder(imports.all, "toy.box")) == chain
    )


NEAR = """
import asyncio, threading
from toytrace import far

def plain():
    return far.one(1) + inside()

def inside():
    return sum([far.one(number) for number in (1, 2)]) + sum(map(far.one, (1, 2)))

async def waits():
    return await far.slow()

def on_a_thread():
    thread = threading.Thread(target=far.one, args=(1,))
    thread.start()
    thread.join()
"""
FAR = """
import asyncio

def one(number):
    return number

async def slow():
    for _ in range(3):
        await asyncio.sleep(0)
    return one(1)
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    root = tmp_path / "toytrace"
    root.mkdir()
    for name, text in {"__init__": "", "near": NEAR, "far": FAR}.items():
        (root / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root, importlib.import_module("toytrace.near")
    for name in [name for name in sys.modules if name.partition(".")[0] == "toytrace"]:
        del sys.modules[name]


def recorded(root, act) -> Way:
    recorder = Recorder(root)
    before = sys.getprofile(), threading.getprofile()
    with recorder.install():
        act()
        with recorder.record() as way:
            act()
        act()
    assert (sys.getprofile(), threading.getprofile()) == before
    return way


def test_a_crossing_is_a_call_by_another_module(toy):
    root, near = toy
    way = recorded(root, near.plain)
    assert way.figures() == {"modules": 2, "functions": 3, "calls": 7, "crossings": 5, "hand-overs": 1}
    assert way.modules() == {"toytrace.near": 2, "toytrace.far": 5}
    assert [str(step.caller) for step in way.crossings()] == ["toytrace.near:plain"] + ["toytrace.near:inside"] * 4


def test_a_coroutine_that_goes_on_is_no_new_call(toy):
    root, near = toy
    way = recorded(root, lambda: asyncio.run(near.waits()))
    assert way.figures() == {"modules": 2, "functions": 3, "calls": 3, "crossings": 1, "hand-overs": 1}
    assert way.modules()["toytrace.near"] == 4


def test_what_a_thread_begins_with_is_a_hand_over(toy):
    root, near = toy
    way = recorded(root, near.on_a_thread)
    assert way.figures() == {"modules": 2, "functions": 2, "calls": 2, "crossings": 0, "hand-overs": 2}


def test_of_several_ways_the_quietest_counts(toy):
    root, near = toy
    noisy, quiet = recorded(root, near.plain), recorded(root, near.inside)
    assert quietest([noisy, quiet, noisy]) is quiet


@pytest.fixture(scope="module")
def imports_of_sarit():
    """Read once for all tests."""
    return levels.read_imports(trace.ROOT)


@pytest.fixture
def _read_once(monkeypatch, imports_of_sarit):
    monkeypatch.setattr(levels, "read_imports", lambda _: imports_of_sarit)


@pytest.mark.usefixtures("_read_once")
def test_a_broken_bound_fails_the_check_and_a_missed_goal_does_not(monkeypatch, capsys):
    monkeypatch.setattr(trace, "LEVELS", {trace.STORE: (0, 1000)})
    assert trace.main(["--static", "--check"]) == 0
    assert "MISSED, bound <= 1000\n" in capsys.readouterr().out
    monkeypatch.setattr(trace, "LEVELS", {trace.STORE: (0, 1)})
    assert trace.main(["--static"]) == 0
    assert trace.main(["--static", "--check", "--json", "--package", "all"]) == 1
    monkeypatch.setattr(trace, "LEVELS", {})
    monkeypatch.setattr(trace, "CIRCLES", (-1, -1))
    assert trace.main(["--static", "--check"]) == 1


@pytest.mark.usefixtures("_read_once")
def test_a_package_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match=r"no package sarit\.nowhere"):
        trace.main(["--static", "--package", "sarit.nowhere"])


@pytest.mark.parametrize(("figure", "reached"), [(6, True), (7, True), (8, False)])
def test_a_goal_is_reached_at_its_bound(figure, reached):
    assert trace.Goal("levels", figure, 7, 9).reached == reached


def test_modules_of_sarit_import_each_other_in_no_circle(imports_of_sarit) -> None:
    """Not for types either: a lower module names a small Protocol instead."""
    assert levels.circles(imports_of_sarit.all) == []


@pytest.mark.parametrize("package", ["benchmarks", "checkers", "simulation", "tools"])
def test_modules_beside_sarit_import_each_other_in_no_circle(package) -> None:
    imports = levels.read_imports(trace.ROOT.parents[1] / package)
    assert len(imports.all) > 1
    assert levels.circles(imports.all) == []
