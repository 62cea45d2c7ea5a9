"""`sarit config`: check, show, example."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sarit.cli import configured_commands as configured
from sarit.cli.config_report import (
    HIDDEN,
    default_value,
    example,
    example_value,
    grouped_options,
    has_example,
    in_toml,
    option_tables,
    without_secrets,
)
from sarit.cli.configured_commands import configured_commands, key_of, settable, variable_of
from sarit.cli.main import cli

COMMANDS = ("standalone", "store", "controller", "worker")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations" / "configuration.md"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """No variable and no file of this machine counts."""
    for command in configured_commands().values():
        for option in settable(command):
            monkeypatch.delenv(variable_of(option), raising=False)
    monkeypatch.delenv("SARIT_CONFIG", raising=False)
    monkeypatch.setattr(configured, "DEFAULT_CONFIG", tmp_path / "none")
    monkeypatch.setattr("sarit.cli.config.DEFAULT_CONFIG", tmp_path / "none")


def run(*args: str, env: dict[str, str] | None = None, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["config", *args], env=env)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sarit.toml"
    path.write_text(text)
    return str(path)


def test_example_is_toml_and_has_every_option_once_in_each_place():
    lines = [line[1:] for line in example().splitlines() if re.match(r"#[a-z-]+ = |\[", line)]
    lines = [line if line.startswith("[") or "=" in line else f"[{line}" for line in lines]
    text = "\n".join(line if "=" in line else f"[{line.strip('[]')}]" for line in lines)
    found = tomllib.loads(text)
    for name, command in configured_commands().items():
        for option in settable(command):
            assert key_of(option) in found[name] or key_of(option) in found, f"{name} {key_of(option)}"
    top = {key for key, value in found.items() if not isinstance(value, dict)}
    assert {"log-level", "scaling-windows", "cluster"} <= top
    assert {"port", "containers", "data-dir"}.isdisjoint(top)  # their meaning or default differs


@pytest.mark.parametrize("command", COMMANDS)
def test_example_without_its_comments_is_a_right_file_with_the_defaults(command, tmp_path):
    text = []
    for table, options in grouped_options().items():
        text.append(f"[{table}]" if table else "")
        text += [f"{key_of(option)} = {in_toml(example_value(option))}" for option in options if has_example(option)]
    path = write(tmp_path, "\n".join(text))
    run("check", path, "--for", command)
    by_default = json.loads(run("show", "--for", command, "--format", "json"))["options"]
    by_file = json.loads(run("show", "--for", command, "--format", "json", "--config", path))["options"]
    values = {row["option"]: row["value"] for row in by_file}
    for row in by_default:
        option = next(o for o in settable(configured_commands()[command]) if key_of(o) == row["option"])
        if default_value(option) is not None:
            assert values[row["option"]] == row["value"]


def test_show_names_the_origin_of_each_value(tmp_path):
    path = write(tmp_path, '\nmemory = "1G"\n[standalone]\nscrub = 0\n')
    shown = json.loads(run("show", "--format", "json", "--store-port", "7", "--config", path, env={"SARIT_HOST": "h"}))
    assert (shown["command"], shown["file"]) == ("standalone", path)
    rows = {row["option"]: (row["value"], row["origin"], row["variable"]) for row in shown["options"]}
    assert rows["memory"] == ("1G", f"{path}:2", "SARIT_MEMORY")
    assert rows["scrub"] == (0, f"{path}:4", "SARIT_SCRUB")
    assert rows["host"] == ("h", "SARIT_HOST", "SARIT_HOST")
    assert rows["store-port"] == (7, "command line", "SARIT_STORE_PORT")
    assert rows["containers"] == (4, "default", "SARIT_CONTAINERS")
    assert rows["scaling-windows"][0] == [120, 300, 600, 1200]
    text = run("show", "--config", path)
    assert re.search(rf"^memory +1G +{path}:2$", text, re.MULTILINE)
    assert re.search(r"^log +\(in DIR\) +default$", text, re.MULTILINE)


def test_show_hides_the_keys_of_s3(tmp_path):
    env = {
        "AWS_ACCESS_KEY_ID": "AKIA7", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "hush2",
        "AWS_ENDPOINT_URL": "http://user:hush3@minio:9000", "AWS_REGION": "eu-1",
    }  # fmt: skip
    path = write(tmp_path, 'storage = "s3://bucket/p"')
    for output in (run("show", "--config", path, env=env), run("show", "--format", "json", "--config", path, env=env)):
        assert "hush" not in output
        assert "AKIA7" not in output
        assert HIDDEN in output
        assert "eu-1" in output
    assert "AWS" not in run("show", env=env)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/p", f"s3://{HIDDEN}@bucket/p"),
        ("see https://u:p%40@h/x?a=1&X-Amz-Signature=abc&b=2", f"see https://{HIDDEN}@h/x?a=1&X-Amz-Signature={HIDDEN}&b=2"),
        ("bookkeeper://zk1:2181/ledgers?e=3", "bookkeeper://zk1:2181/ledgers?e=3"),
        ("file:///a@b", "file:///a@b"),
    ],
)  # fmt: skip
def test_secrets_in_urls_are_hidden(text, shown):
    assert without_secrets(text) == shown


def test_check_names_what_is_wrong_and_ends_with_two(tmp_path):
    path = write(tmp_path, "contaners = 4\nmemory = 5.5\n")
    output = run("check", path, code=2)
    assert f"{path}:1: there is no option 'contaners': did you mean 'containers'?" in output
    assert f"{path}:2: memory: '5.5' is not a size" in output


def test_file_may_be_named_as_other_commands_name_it(tmp_path):
    path = write(tmp_path, 'memory = "lots"\n')
    assert run("check", "--config", path, code=2) == run("check", path, code=2)
    assert "two files are given" in run("check", path, "--config", path, code=2)


def test_show_says_how_a_command_is_named():
    assert "name the command by an option: --for store" in run("show", "store", code=2)


def test_check_finds_options_that_contradict_each_other(tmp_path):
    path = write(tmp_path, "processes = 2\none-port = true\n")
    assert f"(--one-port: {path}:2, --processes: {path}:1)" in run("check", path, code=2)
    path = write(tmp_path, 'memory = "64M"\n')
    assert f"--memory 64M is too little: a node of 4 containers needs 256M (--memory: {path}:1)" in run(
        "check", path, code=2
    )


def test_check_for_a_cluster_checks_its_processes(tmp_path):
    path = write(tmp_path, 'cluster = "zookeeper://zk:2181/first"\nlog = "file:///l"\nstorage = "s3://bucket/p"\n')
    assert run("check", path) == f"{path}: checked for store, controller, worker\n"
    assert "--log" not in run("check", path, "--for", "controller")
    # What a cluster keeps in a directory, a node cannot.
    assert f"{path}:2: log: " in run("check", path, "--for", "standalone", code=2)


def test_check_of_a_store_without_its_cluster_says_so_only_when_it_is_meant(tmp_path):
    path = write(tmp_path, "[store]\nport = 1\n")
    assert run("check", path) == f"{path}: checked for store\n"
    assert "--cluster is missing" in run("check", path, "--for", "store", code=2)


def test_check_counts_variables_and_proposes_the_one_that_was_meant(tmp_path):
    path = write(tmp_path, "")
    assert "SARIT_SCRUB: 'x' is not a size" in run("check", path, env={"SARIT_SCRUB": "x"}, code=2)
    assert "did you mean SARIT_MEMORY?" in run("check", path, env={"SARIT_MEMROY": "1G"})
    assert run("check", env={"SARIT_CONFIG": path}) == f"{path}: checked for standalone\n"
    assert run("check") == "no file: checked for standalone\n"
    assert "cannot be read: No such file or directory" in run("check", str(tmp_path / "missing"), code=2)


def test_nothing_runs_for_a_check(monkeypatch, tmp_path):
    for place in (
        "process.standalone.run", "process.supervisor.run", "cluster.store.run_store",
        "cluster.controller.run_controller",
    ):  # fmt: skip
        monkeypatch.setattr(f"sarit.{place}", lambda *_: pytest.fail("it runs"))
    path = write(tmp_path, 'cluster = "zookeeper://zk:2181/first"\n[standalone]\ncontainers = 2\n')
    assert run("check", path).endswith("standalone, store, controller, worker\n")


def test_page_of_options_is_made_from_the_declarations():
    text = PAGE.read_text()
    begin, end = "<!-- options: begin -->\n\n", "\n<!-- options: end -->"
    assert text.count(begin) == text.count(end) == 1
    found = text[text.index(begin) + len(begin) : text.index(end)]
    assert found == option_tables(), "run `make generate` and commit"


def test_secret_of_an_option_is_hidden():
    from sarit.cli.config_report import effective

    @click.command(cls=configured.Configured)
    @configured.config_option
    @click.option("--admin-token", help="A token.")
    def made(admin_token):
        """One."""

    rows = effective(made.make_context("made", ["--admin-token", "hush"]), {})
    assert [row.value for row in rows] == [HIDDEN]
