"""The programs of examples/pipelines, on a real Spark and a real node: each checks its own results."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from examples.pipelines import search
from examples.pipelines.alarms import WARM_UP, judge
from examples.pipelines.program import Place
from tests.nodes import RunningNode
from tests.spark.slow import SPARK_MAY_BE_SLOW

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).parents[2] / "examples" / "pipelines"
# Program -> its scope, and what it prints at the end.
IN_THIS_PROCESS = {
    "flights": ("aviation", r"6\d\d\d departures in \d{3} results; reports that came too late were dropped"),
    "alarms": ("weather", r"\d+ alarms in \d+ readings\n  EWR/wind_speed 2013-02-12T08h: 1048 miles per hour"),
    "replay": ("airport", r"airport/punctual-v2 is in use: \d+ of \d+ flights were late"),
    "lake": ("lake", r"\d+ flights in \d+ commits of the table; 1\d airlines sent back"),
    "search": ("library", r"\d+ hits in \d+ paragraphs\n  added: \d+\n  iteration: \d+\n  phrase: \d+"),
    "video": ("studio", r"200 frames; the scene changes at 40, 80, 120, 160"),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("pipelines") / "data") as node:
        yield node


@SPARK_MAY_BE_SLOW
@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_pipeline_finds_what_plain_python_finds(spark, node, tmp_path, capsys, name) -> None:
    scope, said = IN_THIS_PROCESS[name]
    with sarit.connect(node.controller) as client:
        client.create_scope(scope)
        client.delete_scope(scope, recursive=True)  # of a run that is repeated
        session = spark.newSession()  # its settings are its own
        session.conf.set("spark.sql.session.timeZone", "UTC")
        importlib.import_module(f"examples.pipelines.{name}").run(Place(session, client, node.controller, tmp_path))
    assert re.search(said, capsys.readouterr().out)


@pytest.mark.parametrize("name", [*IN_THIS_PROCESS, "chain"])
def test_pipeline_explains_itself_without_spark(name) -> None:
    run = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{name}.py"), "--help"],
        capture_output=True, text=True, check=True, cwd="/", env={"PATH": ""},
    )  # fmt: skip
    assert "--controller" in run.stdout
    assert f"python examples/pipelines/{name}.py" in run.stdout


@pytest.mark.parametrize(
    ("query", "text", "hit"),
    [
        ("iterator", "An Iterator yields.", True),
        ("iterator -generator", "A generator is an iterator.", False),
        ('"list of"', "a list, of course", True),
        ('"list of"', "of a list", False),
        ('"list of" tuples', "a list of items", False),
    ],
)
def test_query_matches_words_and_phrases(query, text, hit) -> None:
    assert search.Standing({"q": query}).hits(text) == (["q"] if hit else [])


def test_query_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no word"):
        search.Query.parse("-all")


def test_alarm_leaves_state_as_it_was() -> None:
    state = (0, 0.0, 0.0)
    for number in range(WARM_UP):
        state, alarm = judge(state, float(number % 3))
        assert not alarm
    assert judge(state, 100.0) == (state, True)
    assert not judge(state, 2.0)[1]


@SPARK_MAY_BE_SLOW
def test_cells_of_notebook_run(spark, node, monkeypatch) -> None:
    """Without Jupyter: a notebook is JSON, and its cells are one program."""
    with sarit.connect(node.controller) as client:
        client.create_scope("notebook")
        client.delete_scope("notebook", recursive=True)  # of a run that is repeated
    monkeypatch.setenv("SARIT_CONTROLLER", node.controller)
    monkeypatch.setattr("sarit.spark.session", lambda *_: spark)
    notebook = json.loads((PROGRAMS / "notebook.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(cell["id"]), "exec"), names)
    names["client"].close()
    assert notebook["nbformat"] == 4
    assert all(not cell.get("outputs") for cell in notebook["cells"]), "outputs are of one run: leave them out"
