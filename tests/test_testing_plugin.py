"""The fixtures for users' tests: the guide is pasted into a project and run, and who does not use them pays nothing."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from sarit.testing.node import NodeProcess
from tests.guides.pages import blocks
from tests.limits import HANG_SECONDS

GUIDE = Path(__file__).parent.parent / "docs/guides/testing.md"


def run_pytest(directory, *options, temporary=None):
    """Run the tests of a project; what was printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SARIT_", "PYTEST_"))}
    if temporary is not None:
        environ["TMPDIR"] = str(temporary)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", directory, *options]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, env=environ, timeout=HANG_SECONDS, check=False
    )
    return done.stdout + done.stderr


def test_code_of_the_guide_passes_as_tests_of_a_project(tmp_path):
    project, temporary = tmp_path / "project", tmp_path / "tmp"
    project.mkdir()
    temporary.mkdir()
    for number, block in enumerate(each for each in blocks(GUIDE.read_text()) if each.kind == "python"):
        if "pytest.fixture" in block.text:
            (project / "conftest.py").write_text(block.text)
        elif "def test_" in block.text:
            (project / f"test_{number}.py").write_text(block.text)
    (project / "test_options.py").write_text(
        "def test_options(sarit_node):\n    assert sarit_node.http, 'an option of conftest.py'\n"
    )
    said = run_pytest(project, temporary=temporary)
    assert "4 passed" in said, said
    assert not list(temporary.glob("sarit-*")), "its data is deleted"


def test_a_scope_is_new_and_gone_after_its_test_and_a_dead_node_harms_no_other(tmp_path):
    (tmp_path / "test_it.py").write_text("""
seen = []


def test_first(sarit_client, sarit_scope, sarit_node):
    seen.append(sarit_scope)
    sarit_client.create_stream(f"{sarit_scope}/s")
    sarit_node.kill()
    assert not sarit_node.running


def test_second(sarit_client, sarit_scope, sarit_node):
    assert sarit_scope not in seen
    assert sarit_scope in sarit_client.list_scopes()
    assert seen[0] not in sarit_client.list_scopes()
    sarit_node.stop()


def test_third(sarit_client):
    assert not [name for name in sarit_client.list_scopes() if name.startswith("test-")]
""")
    said = run_pytest(tmp_path)
    assert "3 passed" in said, said


def test_who_does_not_use_it_imports_nothing_of_sarit_but_the_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text("""
import sys


def test_modules():
    loaded = {name for name in sys.modules if name.partition(".")[0] == "sarit"}
    assert loaded == {"sarit", "sarit.testing", "sarit.testing.plugin"}
    assert not {"pyarrow", "numpy", "starlette", "uvicorn", "click"} & set(sys.modules)
""")
    said = run_pytest(tmp_path)
    assert "1 passed" in said, said


def test_node_that_cannot_start_says_why():
    with pytest.raises(RuntimeError, match=r"(?s)ended with code 2.*--contaners"), NodeProcess(["--contaners", "3"]):
        pass


def test_node_keeps_its_ports_and_its_data_when_it_is_killed():
    with NodeProcess() as node:
        before = node.controller, node.store
        with sarit.connect(node.controller) as client:
            client.create_scope("kept")
            first = node.pid
            node.restart()
            assert (node.controller, node.store) == before
            assert node.pid != first
            assert "kept" in client.list_scopes()
        node.stop()
        with pytest.raises(RuntimeError, match="call start"):
            node.pid  # noqa: B018
        assert re.fullmatch(r"<NodeProcess 127\.0\.0\.1:\d+, ended>", repr(node))


def test_node_ends_with_tests_that_are_killed(tmp_path):
    script = (
        "from sarit.testing.node import NodeProcess\n"
        "node = NodeProcess()\nnode.start()\nprint(node.pid, flush=True)\ninput()"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    tests = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )
    pid = int(tests.stdout.readline())
    descriptor = os.pidfd_open(pid)
    assert len(list(tmp_path.iterdir())) == 1
    tests.send_signal(signal.SIGKILL)
    tests.communicate(timeout=HANG_SECONDS)
    assert select.select([descriptor], [], [], HANG_SECONDS)[0], "the node ends"
    os.close(descriptor)
    assert not list(tmp_path.iterdir()), "with its data"
