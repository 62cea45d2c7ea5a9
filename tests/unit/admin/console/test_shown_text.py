"""Text that the console shows, as its own script makes it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import sarit

SCRIPTS = Path(sarit.__file__).parent / "admin" / "console" / "assets" / "js"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_what_turns_or_hides_text_is_shown_as_its_number():
    """A stream whose name has U+202E was shown as another one."""
    texts = {
        "pay\u202elap": "pay\\u202elap", "\u2066a\u2069\u200f\u061c": "\\u2066a\\u2069\\u200f\\u061c",
        "\u0000\u001b[2J\u0085\u2028": "\\u0000\\u001b[2J\\u0085\\u2028", "a\tb\nc\r": "a\tb\nc\r",
        "\u05e9\u05dc\u05d5\u05dd, \u4e16\u754c \U0001f468\u200d\U0001f469": None, "": "",
    }  # fmt: skip
    code = f"console.log(JSON.stringify({json.dumps(list(texts))}.map(visible)))"
    source = (SCRIPTS / "format.js").read_text()
    done = subprocess.run(
        [NODE, "--input-type=module"], input=f"{source}\n{code}", capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [text if shown is None else shown for text, shown in texts.items()]


def test_all_text_of_the_page_is_made_by_one_function():
    """Where text is set otherwise, nothing of it comes from a client."""
    assert "createTextNode(visible(" in (SCRIPTS / "dom.js").read_text()
    for script in SCRIPTS.rglob("*.js"):
        assert "innerHTML" not in script.read_text(), script
        assert script.read_text().count("createTextNode") == (script.name == "dom.js"), script
