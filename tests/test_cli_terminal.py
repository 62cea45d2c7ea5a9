"""The command at a terminal: Ctrl-C in its first moments, colors, completion."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, hears_signals

# Runs the command line as the console script does, and presses Ctrl-C when the import of a module begins.
PRESS = """
import os, signal, sys
wanted, sys.argv = sys.argv[1], ["sarit", *sys.argv[2:]]
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)
from sarit.cli.entry import main
sys.meta_path.insert(0, Press())
main()
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("click", ["read", "a/b"]),
        ("sarit.cli.contexts", ["read", "a/b"]),
        ("sarit.cli.read", ["read", "a/b"]),
        ("sarit.core.cuts", ["read", "a/b"]),
        ("sarit.client.blocking.connection", ["read", "a/b"]),
        ("sarit.process.settings", ["standalone"]),
        ("sarit.process.standalone", ["standalone"]),
    ],
)
def test_interrupt_while_modules_are_imported_is_quiet(module, command, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PRESS, module, *command], capture_output=True, text=True, timeout=HANG_SECONDS,
        check=False, cwd=tmp_path, preexec_fn=hears_signals,
    )  # fmt: skip
    assert done.returncode in (-signal.SIGINT, 130), done
    assert done.stderr.strip() in ("", "interrupted")
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_no_color_is_respected_and_completion_goes_on(tmp_path):
    """Of a terminal, since colors are for one alone."""
    command = [SARIT, "doctor", "--data-dir", str(tmp_path / "data"), "--controller-port", "0", "--store-port", "0"]
    environ = {**os.environ, "SARIT_HTTP_PORT": "off", "TERM": "xterm"}
    shown = {}
    for name in ("", "1"):
        master, terminal = pty.openpty()
        subprocess.run(command, stdout=terminal, env={**environ, "NO_COLOR": name}, timeout=HANG_SECONDS, check=False)
        os.close(terminal)
        shown[name] = os.read(master, 1 << 16)
        os.close(master)
    assert b"\x1b[" in shown[""]
    assert b"\x1b[" not in shown["1"]
    assert b"open files" in shown["1"]
    asked = {**environ, "_SARIT_COMPLETE": "bash_complete", "COMP_WORDS": "sarit stan", "COMP_CWORD": "1"}
    done = subprocess.run([SARIT], capture_output=True, text=True, env={**asked, "NO_COLOR": "1"}, check=False)
    assert done.stdout == "plain,standalone\n"
