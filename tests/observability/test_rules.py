"""The alert rules, and their tests by promtool."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import pytest
import yaml

from sarit.admin.metric_table import BY_NAME, Kind

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")
WITH_FAULTS = ("test_prometheus.py", "test_node_faults.py", "test_more_faults.py", "test_cluster_faults.py",
               "test_iceberg_faults.py", "test_link_faults.py", "test_search_faults.py")  # fmt: skip
# What Prometheus and its client library bring.
FOREIGN = {"up", "process_open_fds", "process_max_fds", "process_start_time_seconds"}


@functools.cache
def rules():
    (group,) = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]
    return group["rules"]


def series_of(metric):
    return {metric.name + suffix for suffix in ("_bucket", "_sum", "_count")} if metric.kind is Kind.HISTOGRAM else {
        metric.name
    }  # fmt: skip


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_rule_asks_for_metrics_that_exist(rule):
    known = {name for metric in BY_NAME.values() for name in series_of(metric)}
    asked = set(re.findall(r"\b(sarit_\w+|process_\w+|up)\b", rule["expr"]))
    assert asked
    assert asked <= known | FOREIGN


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_rule_says_what_is_wrong_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "action", "runbook"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_runbook_of_a_rule_is_a_section_of_a_page(rule):
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^##+ (.*)$", (DEPLOY.parents[1] / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_counts_are_shown_as_whole_numbers(rule):
    """`increase` extrapolates, so that four containers were 4.137."""
    shown = re.findall(r"\{\{ \$value([^}]*)\}\}(?! per second)", rule["annotations"]["summary"])
    counts = [how for how in shown if not re.search("Duration|Percentage|1024|per second", how)]
    assert all(how == ' | printf "%.0f" ' for how in counts)
    if counts:
        assert rule["expr"].count("increase(") == rule["expr"].count("ceil(increase(")


def test_each_rule_has_a_test_that_fires_and_one_that_does_not():
    tests = yaml.safe_load((DEPLOY / "rules_test.yml").read_text())["tests"]
    assert sorted(test["name"] for test in tests) == sorted(
        f"{rule['alert']} {ends}" for rule in rules() for ends in ("fires", "does not fire")
    )
    for test in tests:
        (expected,) = test["promql_expr_test"]
        assert bool(expected["exp_samples"]) == test["name"].endswith(" fires")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_rule_has_a_fault_that_makes_it_fire(rule):
    """The tests with a real Prometheus name each alert that they wait for, alone or in a set."""
    asked = "".join((Path(__file__).parent / name).read_text() for name in WITH_FAULTS)
    awaited = re.findall(r'until_firing\("(\w+)"\)|while "(\w+)" not in |fires = lambda: "(\w+)" in ', asked)
    wanted = re.findall(r"wanted = \{([^}]*)\}", asked)
    assert rule["alert"] in {*chain(*awaited), *re.findall(r"\w+", " ".join(wanted))}


@pytest.mark.long
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
def test_rules_pass_their_tests(tmp_path):
    assert PROMTOOL is not None
    for kind, name in (("rules", "rules.yml"), ("config", "prometheus.yml")):
        subprocess.run([PROMTOOL, "check", kind, DEPLOY / name], check=True, capture_output=True)
    done = subprocess.run([PROMTOOL, "test", "rules", DEPLOY / "rules_test.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
@pytest.mark.parametrize("broken", ["vector(1) == 1", "vector(1) == 0"])
def test_tests_of_rules_find_a_rule_that_always_or_never_fires(tmp_path, broken):
    assert PROMTOOL is not None
    shutil.copy(DEPLOY / "rules_test.yml", tmp_path)
    text = yaml.safe_load((DEPLOY / "rules.yml").read_text())
    for rule in text["groups"][0]["rules"]:
        rule["expr"] = broken
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(text))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", tmp_path / "rules_test.yml"], capture_output=True, text=True, check=False
    )
    failed = set(re.findall(r"name: (\w+)", done.stdout + done.stderr)) or done.stderr.count("FAILED")
    assert done.returncode == 1, failed
