"""The table of extras against pyproject.toml, and the command that installs one."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from sarit.core.errors import Invalid
from sarit.core.extras import EXTRAS, MissingExtra, install_command, require

DECLARED = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHER_NAMES = {"all", "avro"}  # of extras that are in the table already


def distributions(extra: str) -> set[str]:
    """The names of what an extra brings itself."""
    return {re.split(r"[<>=;\[ ]", line)[0] for line in DECLARED[extra]} - {"sarit"}


def test_table_has_the_extras_of_pyproject():
    assert set(EXTRAS) == set(DECLARED) - OTHER_NAMES
    for extra, (modules, included) in EXTRAS.items():
        brought = importlib.metadata.packages_distributions()
        of_modules = {re.sub("[_.]", "-", name).lower() for each in modules for name in brought[each.split(".")[0]]}
        assert distributions(extra) <= of_modules, extra
        own = {line for line in DECLARED[extra] if line.startswith("sarit[")}
        assert own == {f"sarit[{name}]" for name in included}
    assert DECLARED["avro"] == ["sarit[registry]"]


def test_all_is_every_extra():
    (line,) = DECLARED["all"]
    named = set(re.findall(r"\w+", line)) - {"sarit"}
    assert named | {inner for name in named for inner in EXTRAS[name][1]} == set(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_that_is_here_is_no_error(extra):
    require(extra, "a test")


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_missing_module_is_one_error_with_the_command(extra, monkeypatch):
    modules, included = EXTRAS[extra]
    for name in [*modules, *(module for each in included for module in EXTRAS[each][0])]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            expected = rf'^a test needs .*: pip install "sarit\[{extra}\] @ file:'
            with pytest.raises(MissingExtra, match=expected) as caught:
                require(extra, "a test")
        assert isinstance(caught.value, Invalid)
        assert isinstance(caught.value, ImportError)
        assert "\n" not in str(caught.value)


class _Installed:
    def __init__(self, origin: object) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "sarit[node]"'),
        ({"url": "file:///a/sarit.whl", "archive_info": {}}, 'pip install "sarit[node] @ file:///a/sarit.whl"'),
        (
            {"url": "https://here/sarit", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            'pip install "sarit[node] @ git+https://here/sarit@abc"',
        ),
    ],
)
def test_command_installs_from_where_this_came(origin, command, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: _Installed(origin))
    assert install_command("node") == command


def test_copy_without_metadata_names_the_registry(monkeypatch):
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("tls") == 'pip install "sarit[tls]"'
