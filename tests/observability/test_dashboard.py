"""The dashboard has the structure that its schema version asks for; `make observability` asks for data."""

from __future__ import annotations

import copy
import json
import re
from itertools import combinations
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "sarit.json"
# Of schema version 39 (Grafana 10.4 and 11): fields and their types.
VERSION = 39
DASHBOARD = {
    "title": str, "uid": str, "schemaVersion": int, "version": int, "editable": bool, "refresh": str, "time": dict,
    "timezone": str, "tags": list, "panels": list, "templating": dict, "annotations": dict,
}  # fmt: skip
PANEL = {"id": int, "type": str, "title": str, "gridPos": dict}
DRAWN = {**PANEL, "datasource": dict, "fieldConfig": dict, "options": dict, "targets": list}
TARGET = {"refId": str, "expr": str, "datasource": dict}
UNITS = {"short", "s", "bytes", "Bps", "ops", "reqps", "percentunit", "percent", "none", "cps", "dtdurations"}
COLUMNS, MAX_UID = 24, 40
SOURCE = {"type": "prometheus", "uid": "$datasource"}


def faults(dashboard) -> list[str]:
    """What Grafana would refuse, or show as an empty or a misplaced panel."""
    found = [*_missing("dashboard", dashboard, DASHBOARD)]
    if dashboard["schemaVersion"] != VERSION:
        found.append(f"schemaVersion is {dashboard['schemaVersion']}")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", dashboard["uid"]):
        found.append("uid is no identifier")
    if not {"from", "to"} <= set(dashboard["time"]) or not re.fullmatch(r"\d+[smh]", dashboard["refresh"]):
        found.append("time or refresh")
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    for variable in dashboard["templating"]["list"]:
        found += _missing(f"variable {variable['name']}", variable, {"name": str, "type": str, "query": str})
        if variable["type"] == "query" and variable.get("datasource") != SOURCE:
            found.append(f"variable {variable['name']} asks another source")
    numbers = [panel["id"] for panel in dashboard["panels"]]
    if len(set(numbers)) != len(numbers):
        found.append("two panels have one id")
    for panel in dashboard["panels"]:
        found += _panel_faults(panel, variables)
    found += [
        f"{one['title']} lies on {other['title']}"
        for one, other in combinations(dashboard["panels"], 2)
        if _overlap(one["gridPos"], other["gridPos"])
    ]
    return found


def _missing(what, value, fields):
    return [f"{what}: {name}" for name, kind in fields.items() if type(value.get(name)) is not kind]


def _panel_faults(panel, variables):
    name = f"panel {panel.get('title')}"
    if panel["type"] == "row":
        return _missing(name, panel, {**PANEL, "collapsed": bool, "panels": list})
    found = _missing(name, panel, DRAWN)
    if panel["type"] not in ("timeseries", "stat"):
        found.append(f"{name}: type {panel['type']}")
    at = panel["gridPos"]
    if set(at) != {"x", "y", "w", "h"} or not 0 <= at["x"] < at["x"] + at["w"] <= COLUMNS or at["h"] < 1:
        found.append(f"{name}: gridPos {at}")
    if panel["datasource"] != SOURCE:
        found.append(f"{name}: datasource")
    if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        found.append(f"{name}: unit {panel['fieldConfig']['defaults'].get('unit')}")
    if not isinstance(panel["fieldConfig"].get("overrides"), list):
        found.append(f"{name}: overrides")
    letters = [target["refId"] for target in panel["targets"]]
    if not letters or len(set(letters)) != len(letters):
        found.append(f"{name}: refId")
    for target in panel["targets"]:
        found += _missing(name, target, TARGET)
        used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
        if not used <= set(variables):
            found.append(f"{name}: no variable {used - set(variables)}")
    return found


def _overlap(one, other):
    return (
        one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]
    )  # fmt: skip


def test_dashboard_has_the_structure_of_its_schema_version():
    assert faults(json.loads(FILE.read_text())) == []


@pytest.mark.parametrize("broken", [
    lambda board: board.update(schemaVersion=12),
    lambda board: board.pop("uid") and board.update(uid="a b"),
    lambda board: board["panels"][1].update(id=board["panels"][2]["id"]),
    lambda board: board["panels"][1]["gridPos"].update(w=30),
    lambda board: board["panels"][1]["gridPos"].update(board["panels"][2]["gridPos"]),
    lambda board: board["panels"][1].pop("fieldConfig") and board["panels"][1].update(fieldConfig={"defaults": {}}),
    lambda board: board["panels"][1]["targets"][0].update(expr="up{job=\"$jobs\"}"),
    lambda board: board["panels"][1].update(targets=[]),
    lambda board: board["templating"]["list"][1].update(datasource=None),
])  # fmt: skip
def test_faults_of_the_structure_are_found(broken):
    board = copy.deepcopy(json.loads(FILE.read_text()))
    broken(board)
    assert faults(board)
