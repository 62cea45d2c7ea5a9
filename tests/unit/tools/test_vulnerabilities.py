"""The audit of what is locked: a build fails when something is found, and when nothing was audited."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.vulnerabilities import COMMAND, main, problems, wanted_packages

ROOT = Path(__file__).resolve().parents[3]
LOCKED = """# made by uv
anyio==4.16.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via sarit
Colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:cc
argon2-cffi[x]==25.1.0 ; python_full_version >= '3.1' \\
    --hash=sha256:dd
"""
WANTED = {"anyio": "4.16.0", "argon2-cffi": "25.1.0"}
CLEAN = {
    "dependencies": [
        {"name": "anyio", "version": "4.16.0", "vulns": []}, {"name": "argon2_cffi", "version": "25.1.0", "vulns": []}
    ]
}  # fmt: skip
HARMFUL = {"name": "anyio", "version": "4.16.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["4.17"]}]}


def test_packages_of_this_platform_are_wanted():
    assert wanted_packages(LOCKED) == WANTED
    assert wanted_packages("# nothing\n") == {}


@pytest.mark.parametrize(
    ("report", "found"),
    [
        (CLEAN, []),
        ({"dependencies": [HARMFUL, CLEAN["dependencies"][1]]}, ["anyio 4.16.0 has PYSEC-1; mended in 4.17"]),
        ({"dependencies": CLEAN["dependencies"][:1]}, ["argon2-cffi 25.1.0 was not audited: it is not in the report"]),
        (
            {"dependencies": [{"name": "anyio", "skip_reason": "not on PyPI"}, CLEAN["dependencies"][1]]},
            ["anyio 4.16.0 was not audited: not on PyPI"],
        ),
        (
            {"dependencies": [{**CLEAN["dependencies"][0], "version": "1"}, CLEAN["dependencies"][1]]},
            ["anyio 4.16.0 was not audited: it is not in the report"],
        ),
        ({"dependencies": []}, [f"{name} {WANTED[name]} was not audited: it is not in the report" for name in WANTED]),
        ({}, ["pip-audit has written no report: nothing was audited"]),
        ([], ["pip-audit has written no report: nothing was audited"]),
    ],
)
def test_each_package_must_have_been_audited(report, found):
    assert problems(json.dumps(report), WANTED) == found


def test_report_that_is_none_and_a_lock_without_packages_fail():
    assert problems("", WANTED) == ["pip-audit has written no report: nothing was audited"]
    assert problems(json.dumps({"dependencies": []}), {}) == ["no package is locked: nothing was audited"]


@pytest.mark.parametrize(
    ("locked", "report", "ends", "code"),
    [
        (LOCKED, CLEAN, 0, 0), (LOCKED, CLEAN, 1, 1), (LOCKED, {"dependencies": []}, 0, 1),
        ("", {"dependencies": []}, 0, 1), (LOCKED, None, 0, 1), (LOCKED, None, 2, 1),
        (LOCKED, {"dependencies": [HARMFUL, CLEAN["dependencies"][1]]}, 1, 1),
    ],
)  # fmt: skip
def test_exit_code_of_the_build(tmp_path, capsys, locked, report, ends, code):
    file = tmp_path / "locked.txt"
    file.write_text(locked)
    text = "" if report is None else json.dumps(report)
    command = (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({ends})")
    assert main(str(file), command) == code
    assert bool(capsys.readouterr().err) == bool(code)


def test_scan_of_the_makefile_uses_it_strictly():
    (scan,) = [part for part in (ROOT / "Makefile").read_text().split("\n\n") if part.startswith("security-scan:")]
    assert "tools.vulnerabilities .cache/locked.txt" in scan
    assert "pip-audit" not in scan
    assert "--strict" in COMMAND
