"""Documents with thousands of levels, wherever one is read: one error of the kind that the caller expects."""

from __future__ import annotations

import base64

import pytest

from sarit.admin.log_level import _level
from sarit.cli.config_file import parse_config
from sarit.cli.transfer.progress import Noted
from sarit.client.core.contexts import decode_contexts
from sarit.client.core.delegation import lifetime
from sarit.client.sync import configuration, membership_list
from sarit.core.bounded_json import read_json
from sarit.core.errors import Corrupt, Invalid
from sarit.ops.backup import manifest
from sarit.spark.source.starts import _json_map

DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(
    ("read", "error", "words"),
    [
        (read_json, Invalid, "too many levels"),
        (lambda data: manifest.decode(data, "the manifest"), Corrupt, "the manifest of the backup is damaged"),
        (lambda data: _json_map("start", data.decode()), Invalid, "option start is no JSON: it has too many levels"),
        (lambda data: configuration.decode(data), Corrupt, None),
        (lambda data: membership_list.decode(data), Corrupt, None),
        (lambda _: parse_config("a = " + "[" * 100_000, "a.toml"), ValueError, "a.toml: this is not TOML"),
        (lambda _: decode_contexts("a = " + "[" * 100_000), ValueError, "too many levels"),
    ],
)
def test_a_deep_document_is_one_clear_error(read, error, words) -> None:
    with pytest.raises(error, match=words):
        read(DEEP)


def test_a_deep_document_is_none_where_nothing_is_raised(tmp_path) -> None:
    assert _level(DEEP) == DEEP[:40].decode()
    assert lifetime("." + base64.urlsafe_b64encode(DEEP).decode() + ".") is None
    (tmp_path / "p").write_bytes(DEEP)
    with pytest.raises(Invalid, match="is no file of progress"):
        Noted(tmp_path / "p", {}).read()
