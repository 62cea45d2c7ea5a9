"""Text that the console shows, as its own script makes it."""

from __future__ import annotations

import base64
import json

import pytest

from tests.unit.admin.console.scripts import SCRIPTS, evaluate, needs_node


@needs_node
def test_what_turns_or_hides_text_is_shown_as_its_number():
    """A stream whose name has U+202E was shown as another one."""
    texts = {
        "pay\u202elap": "pay\\u202elap", "\u2066a\u2069\u200f\u061c": "\\u2066a\\u2069\\u200f\\u061c",
        "\u0000\u001b[2J\u0085\u2028": "\\u0000\\u001b[2J\\u0085\\u2028", "a\tb\nc\r": "a\tb\nc\r",
        "\u05e9\u05dc\u05d5\u05dd, \u4e16\u754c \U0001f468\u200d\U0001f469": None, "": "",
    }  # fmt: skip
    found = evaluate("format.js", f"{json.dumps(list(texts))}.map(visible)")
    assert found == [text if shown is None else shown for text, shown in texts.items()]


@needs_node
@pytest.mark.parametrize(
    "text",
    [
        '{"id": 12345678901234567890, "a": 1.0, "a": 1e400, "e": {}, "l": [], "t": "a, b: {\\"}"}', "[1,[2,[3]],null]",
        '{"<script>": "\\u0000"}', "[" * 200 + "]" * 200,
    ],
)  # fmt: skip
def test_a_json_document_is_laid_out_and_not_changed(text):
    """Numbers of more than 53 bits were rounded, and the first of two fields of a name was left out."""
    payload = {"base64": base64.b64encode(text.encode()).decode(), "cut": False}
    shown = evaluate("format.js", f"decode({json.dumps(payload)}).text")
    assert "".join(shown.split()) == "".join(text.split())
    assert evaluate("format.js", f"pretty(compact({json.dumps(text)}))") == shown
    assert evaluate("format.js", 'pretty(\'{"a":[1,{}],"b":2}\')') == '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": 2\n}'


@needs_node
def test_payloads_are_shown_by_what_they_are():
    cases = {
        b'{"a": 1}': "json", b"plain": "text", "ünï".encode(): "text", b"\xff\x00": "hex",
        b"\x00\x00\x00\x00\x05{}": "hex",
        b"{no json": "text", b"": "text", b"a\x1b[2J": "hex",
    }  # fmt: skip
    payloads = [{"base64": base64.b64encode(data).decode(), "cut": False, "bytes": len(data)} for data in cases]
    found = evaluate("format.js", f"{json.dumps(payloads)}.map((payload) => decode(payload).kind)")
    assert found == list(cases.values())


def test_all_text_of_the_page_is_made_by_one_function():
    """Where text is set otherwise, nothing of it comes from a client."""
    assert "createTextNode(visible(" in (SCRIPTS / "dom.js").read_text()
    for script in SCRIPTS.rglob("*.js"):
        assert "innerHTML" not in script.read_text(), script
        assert script.read_text().count("createTextNode") == (script.name == "dom.js"), script
