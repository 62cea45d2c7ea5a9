"""Commands that the console gives to copy: a shell takes them for what they are, whatever is in an event."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess

import pytest

from sarit.cli.envelopes import envelope_parts
from sarit.cli.transfer.rows import from_json
from sarit.cli.write import write
from sarit.core.envelope import Envelope
from tests.unit.admin.console.scripts import evaluate, needs_node

pytestmark = needs_node

HOSTILE = (
    "it's", "$(touch pwned)", "`touch pwned`", "a; touch pwned", "!!", "\\", "\\'", "'", '"', "-n", "--header=x",
    "%s%n", "two\nlines\n", "\u001b[2J\u001b]0;x\u0007", "\u202etxt", "ünï \U0001f468", "* ? [a] {a,b} ~ # & | > pwned",
    "",     "\u0000nul", "a\r", "=ls", "\u2028", "x" * 5000, "\u0085",
)  # fmt: skip


def run_in_shell(shell: str, command: str, directory) -> tuple[list[str], bytes]:
    """Arguments and standard input that `sarit` gets."""
    fake = directory / "sarit"
    fake.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\0" "$a"; done > args\ncat > stdin\n')
    fake.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", command], cwd=directory, env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b""), command
    assert not (directory / "pwned").exists()
    return (directory / "args").read_bytes().decode().split("\0")[:-1], (directory / "stdin").read_bytes()


def written(args: list[str], data: bytes) -> tuple[bytes, str | None]:
    """The event that `sarit write` would write, and its key."""
    context = write.make_context("write", args[1:])
    given = context.params
    assert str(given["name"]) == "s/t"
    parts = envelope_parts(given["envelope"], given["headers"], given["event_time"])
    assert data.endswith(b"\n")
    if given["shape"] == "json":
        row = from_json(data[:-1], key=given["key"]).row(parts)
        return row.event, row.key
    assert data.count(b"\n") == 1
    if parts is None:
        return data[:-1], given["key"]
    return bytes(Envelope(data[:-1], key=given["key"], event_time=parts.event_time, headers=parts.headers)), given[
        "key"
    ]


@pytest.mark.parametrize("shell", [shell for shell in ("sh", "bash", "zsh") if shutil.which(shell)])
def test_an_event_is_written_again_as_it_is(shell, tmp_path) -> None:
    cases = [{"text": text} for text in HOSTILE]
    cases += [{"text": "x", "key": text} for text in HOSTILE]
    cases += [{"text": text, "key": text, "headers": [{"name": text, "value": text}]} for text in HOSTILE]
    cases += [
        {"base64": base64.b64encode(bytes(range(256))).decode(), "key": "k"},
        {"text": "x", "event_time": "2026-01-31T12:00:00.123456Z", "envelope": True},
        {"text": "x\ny", "event_time": "2026-01-31T12:00:00.123456Z", "envelope": True},
        {"text": "x", "headers": [{"name": "raw", "base64": "/wA="}, {"name": "a=b", "value": "c"}]},
    ]
    commands = evaluate("shell.js", f"{json.dumps(cases)}.map((event) => writeCommand('s/t', event))")
    for case, command in zip(cases, commands, strict=True):
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2028" for c in command), case
        event, key = written(*run_in_shell(shell, command, tmp_path))
        payload = case["text"].encode() if "text" in case else base64.b64decode(case["base64"])
        headers = [
            (one["name"], one["value"].encode() if "value" in one else base64.b64decode(one["base64"]))
            for one in case.get("headers", [])
        ]
        time = 1_769_860_800_123_456 if "event_time" in case else None
        assert key == (case.get("key") or None)
        if headers or time or case.get("envelope"):
            assert event == bytes(Envelope(payload, key=case.get("key") or None, event_time=time, headers=headers)), (
                case
            )
        else:
            assert event == payload, case


def test_words_are_what_they_were(tmp_path) -> None:
    words = ["sarit", "read", *HOSTILE[:-1], *(f"--from={text}" for text in HOSTILE)]
    words = [word for word in words if "\0" not in word]
    command = evaluate("shell.js", f"command(...{json.dumps(words)})")
    args, _ = run_in_shell("sh", f"{command} < /dev/null", tmp_path)
    assert args == words[1:]
    assert evaluate("shell.js", "command('sarit', 'read', 's/t', option('from', '-10 minutes'), '--follow')") == (
        "sarit read s/t --from='-10 minutes' --follow"
    )
