"""Options as flags, variables and keys of a file.

Every option that is declared is tested, by its declaration: a new one is covered by itself.
"""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from sarit.cli import configured_commands as configured
from sarit.cli.configured_commands import Configured, allowed_values, key_of, settable, unknown_variables, variable_of
from sarit.cli.main import cli
from sarit.cli.option_types import Memory, Text
from sarit.cluster import controller as cluster_controller
from sarit.cluster import store as cluster_store
from sarit.process import standalone
from sarit.process import supervisor as processes
from sarit.process.addresses import advertised_port

CLUSTER = "zookeeper://127.0.0.1:1/c"
COMMANDS = ("standalone", "store", "controller", "worker")
OPTIONS = [
    pytest.param(name, option, id=f"{name}-{key_of(option)}")
    for name in COMMANDS
    for option in settable(configured.configured_commands()[name])
]
# A control character is no part of a number, a name, a path, or a URL.
WRONG = "\x01?"


@pytest.fixture(autouse=True)
def run_configs(monkeypatch, tmp_path):
    """The configurations with which processes would run.  No variable and no file of this machine counts."""
    found = []
    runs = (standalone, "run"), (processes, "run"), (cluster_store, "run_store"), (cluster_controller, "run_controller")
    for module, name in runs:
        monkeypatch.setattr(module, name, lambda config, reload: found.append(config))
    for _, option in (param.values for param in OPTIONS):
        monkeypatch.delenv(variable_of(option), raising=False)
    monkeypatch.setattr(configured, "DEFAULT_CONFIG", tmp_path / "none")
    return found


def invoke(command: str, *options: str, env: dict[str, str] | None = None) -> str:
    """The output of a command that is refused, on one line."""
    done = CliRunner().invoke(cli, [command, *options], env=env)
    assert done.exit_code != 0
    return " ".join((done.output if done.exit_code == 2 else str(done.exception)).split())


def needed(command: str, option: click.Option) -> list[str]:
    return [] if command == "standalone" or option.name == "cluster" else ["--cluster", CLUSTER]


def wrong_list(option: click.Option) -> list[str]:
    return [WRONG] * option.nargs


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_wrong_value_as_a_flag_is_refused_with_the_option_and_what_is_allowed(command, option, run_configs):
    if option.is_flag:
        pytest.skip("a flag of two names takes no value")
    output = invoke(command, f"--{key_of(option)}", *wrong_list(option), *needed(command, option))
    assert f"--{key_of(option)}" in output
    assert (allowed_values(option) or "") in output
    assert not run_configs


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_wrong_value_in_a_variable_is_refused_with_its_name_and_what_is_allowed(command, option, run_configs):
    env = {variable_of(option): " ".join(wrong_list(option))}
    output = invoke(command, *needed(command, option), env=env)
    assert f"Error: {variable_of(option)}: " in output
    assert (allowed_values(option) or "") in output
    assert not run_configs


@pytest.mark.parametrize(("command", "option"), OPTIONS)
@pytest.mark.parametrize("kind", ["text", "date", "table"])
@pytest.mark.parametrize("place", ["top", "table"])
def test_wrong_value_in_the_file_is_refused_with_line_and_key(command, option, kind, place, run_configs, tmp_path):
    path = tmp_path / "sarit.toml"
    text = json.dumps(WRONG if option.nargs == 1 and not option.multiple else wrong_list(option))
    value = {"text": text, "date": "2026-01-02", "table": "{ x = 1 }"}[kind]
    path.write_text(f"# first line\n{f'[{command}]' if place == 'table' else ''}\n{key_of(option)} = {value}\n")
    output = invoke(command, "--config", str(path), *needed(command, option))
    assert output.startswith(f"Error: {path}:3: {key_of(option)}: ")
    assert (allowed_values(option) or "") in output
    assert not run_configs


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_misspelt_key_and_variable_are_answered_with_the_right_name(command, option, tmp_path):
    path = tmp_path / "sarit.toml"
    misspelt = f"{key_of(option)}x"
    path.write_text(f"\n[{command}]\n{misspelt} = 1\n")
    output = invoke(command, "--config", str(path), *needed(command, option))
    assert f"{path}:3: {command} has no option {misspelt!r}: did you mean " in output
    assert unknown_variables({variable_of(option): "1"}) == []
    assert unknown_variables({variable_of(option) + "X": "1", "SARIT_SEED": "7", "HOME": "/"}) == [
        f"the variable {variable_of(option)}X is not one of Sarit's: did you mean {variable_of(option)}?"
    ]


CHOICES = [param for param in OPTIONS if isinstance(param.values[1].type, click.Choice)]


@pytest.mark.parametrize(("command", "option"), CHOICES)
@pytest.mark.parametrize("place", ["flag", "variable", "file"])
def test_misspelt_value_is_answered_with_the_nearest(command, option, place, tmp_path):
    right = max(map(str, option.type.choices), key=len)
    wrong, path, key = right[0] + right, tmp_path / "sarit.toml", key_of(option)
    path.write_text(f"{key} = '{wrong}'\n" if place == "file" else "")
    flags = [f"--{key}", wrong] if place == "flag" else []
    env = {variable_of(option): wrong} if place == "variable" else None
    output = invoke(command, "--config", str(path), *flags, *needed(command, option), env=env)
    origin = {"flag": f"--{key}", "variable": f"{variable_of(option)}: ", "file": f"{path}:1: {key}: "}[place]
    assert origin in output
    assert f"'{wrong}' is not allowed: did you mean '{right}'?; allowed: {allowed_values(option)}" in output


def test_variables_of_clients_are_known():
    names = ("USER", "PASSWORD_FILE", "TOKEN_FILE", "CA_FILE", "CERT_FILE", "KEY_FILE", "TRACES")
    assert unknown_variables({f"SARIT_{name}": "x" for name in names}) == []


def test_every_option_says_what_it_takes():
    for _, option in (param.values for param in OPTIONS):
        assert option.help
        assert option.type is not click.STRING, f"--{key_of(option)} takes any text: give it a type"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_their_options_from_file_and_environment(command):
    found = configured.configured_commands()[command]
    assert isinstance(found, Configured)
    assert any(param.name == "config" for param in found.params)


def config_of(run_configs, *options, env=None):
    done = CliRunner().invoke(cli, ["standalone", *options], env=env)
    assert done.exit_code == 0, done.output
    return run_configs.pop()


def test_flag_wins_over_variable_over_table_over_top_over_default(run_configs, tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text("store-port = 1\n")
    flag, variable = ["--store-port", "4"], {"SARIT_STORE_PORT": "3", "SARIT_CONFIG": str(path)}
    assert config_of(run_configs, *flag, env=variable).store_port == 4
    assert config_of(run_configs, env=variable).store_port == 3
    assert config_of(run_configs, env={"SARIT_CONFIG": str(path)}).store_port == 1
    path.write_text("store-port = 1\n[standalone]\nstore_port = 2\n")
    assert config_of(run_configs, "--config", str(path)).store_port == 2
    assert config_of(run_configs, env={"SARIT_STORE_PORT": ""}).store_port == 12345


def test_flags_of_two_names_can_take_back_what_the_file_says(run_configs, tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text("one-port = true\n")
    assert config_of(run_configs, "--config", str(path)).one_port
    assert not config_of(run_configs, "--config", str(path), "--no-one-port").one_port
    assert not config_of(run_configs, "--config", str(path), env={"SARIT_ONE_PORT": "false"}).one_port


def test_whole_node_is_configured_by_file_and_environment(run_configs, tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text(
        'data-dir = "/srv/data"\nhost = "0.0.0.0"\ncontainers = 8\nhttp-port = 7\nmemory = "1G"\nscrub = 0\n'
        "scaling-windows = [1, 2, 3, 4.5]\nretention-interval = 7\n[standalone]\nadvertise = 'n1'\n"
    )
    env = {"SARIT_STORAGE": "s3://bucket/p", "SARIT_ALLOW_DAMAGED": "true", "SARIT_SCALING_COOL_DOWN": "9"}
    found = config_of(run_configs, "--config", str(path), env=env)
    assert (found.data_dir, found.host, found.advertised.host, found.containers) == ("/srv/data", "0.0.0.0", "n1", 8)
    assert (found.memory_bytes, found.scrub_bytes_per_second, found.storage_url) == (1 << 30, 0, "s3://bucket/p")
    assert (found.allow_damaged, found.http_port) == (True, 7)
    assert (found.times.scaling.windows, found.times.scaling.cool_down) == ((1.0, 2.0, 3.0, 4.5), 9.0)
    assert found.times.retention.interval == 7


@pytest.mark.parametrize(
    ("text", "host", "port", "store_port"),
    [
        ("n1", "n1", None, None),
        ("n1:7", "n1", 7, None),
        ("n1.example.com:7:8", "n1.example.com", 7, 8),
        ("2001:db8::1:7", "2001:db8::1:7", None, None),
        ("[2001:db8::1]", "2001:db8::1", None, None),
        ("[2001:db8::1]:7:8", "2001:db8::1", 7, 8),
    ],
)
def test_advertised_address_may_name_the_ports_that_are_mapped(text, host, port, store_port, run_configs):
    found = config_of(run_configs, "--advertise", text, "--processes", "3")
    assert (found.advertised.host, found.advertised.port, found.advertised.store_port) == (host, port, store_port)
    assert advertised_port(found, 1) == (port or 1)
    assert [found.advertised_store(100 + k, k) for k in (0, 2)] == [(store_port or 100) + k for k in (0, 2)]
    shown = next(option for option in found.options if option.option == "advertise")
    assert shown.value.strip("'\"") in (text, host)


@pytest.mark.parametrize("text", ["n1:0", "n1:65536", "n1:x", "n1:1:2:3", "[n1]:7", "[::1", "n1/x", "::1]:7", "[::1]7"])
@pytest.mark.parametrize("command", ["standalone", "store"])
def test_wrong_advertised_address_is_refused(command, text):
    needs = [] if command == "standalone" else ["--cluster", CLUSTER]
    assert "is no address: write HOST, or HOST:" in invoke(command, "--advertise", text, *needs)


def test_process_of_a_cluster_advertises_one_port():
    assert "is no address: write HOST, or HOST:PORT" in invoke("store", "--advertise", "n1:1:2", "--cluster", CLUSTER)


def test_list_has_all_three_forms(run_configs, tmp_path):
    file = tmp_path / "sarit.toml"
    file.write_text('data-dir = "/srv/data"\nhttp-name = ["a.example", "b.example"]\n')
    base = ["standalone", "--config", str(file)]
    for options, env in (([], {}), ([], {"SARIT_HTTP_NAME": "c.example d.example"}), (["--http-name", "e"], {})):
        assert CliRunner().invoke(cli, [*base, *options], env=env).exit_code == 0
    names = [config.security.http_names for config in run_configs]
    assert names == [("a.example", "b.example"), ("c.example", "d.example"), ("e",)]
    file.write_text('data-dir = "/srv/data"\nhttp-name = "a.example"\n')
    assert "2: http-name: a.example is not a list" in invoke(*base)


def test_default_file_is_read_when_it_is_there_and_dev_null_is_none(run_configs, monkeypatch, tmp_path):
    monkeypatch.setattr(configured, "DEFAULT_CONFIG", tmp_path / "sarit.toml")
    (tmp_path / "sarit.toml").write_text("containers = 2")
    assert config_of(run_configs).containers == 2
    assert config_of(run_configs, "--config", "/dev/null").containers == 4


def test_every_fault_of_a_file_is_named_at_once(tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text(
        "hots = 'a'\nmemory = '4X'\nstore-port = 99999\nstore_port = 1\n[stroe]\nx = 1\n[controller]\nexpct = 3\n"
        "[standalone]\none-port = 1\ncontainers = 4.5\n"
    )
    done = CliRunner().invoke(cli, ["standalone", "--config", str(path)])
    assert done.exit_code == 2
    assert done.output.replace(f"{path}:", "").splitlines() == [
        "Error: 5: there is no table [stroe]: did you mean 'store'?; there are [standalone], [store], [controller], "
        "[worker], [init], and keys on top are for all",
        "1: there is no option 'hots': did you mean 'host'?",
        "8: controller has no option 'expct': did you mean 'expect'?",
        "4: store_port is the same option as store-port in line 3: keep one",
        "11: containers: '4.5' is not a valid integer range; allowed: a whole number from 1 to 1024",
        "2: memory: '4X' is not a size: write it as 512M, 2G, or in bytes",
        "10: one-port: 1 is not true or false; allowed: true, false",
    ]


@pytest.mark.parametrize(
    ("options", "file", "env", "message"),
    [
        ((), "processes = 2\n[standalone]\none-port = true", {}, "--one-port: FILE:3, --processes: FILE:1"),
        (("--processes", "9"), "", {"SARIT_CONTAINERS": "3"},
         "--processes: command line, --containers: SARIT_CONTAINERS"),
        ((), "controller-port = 12345", {}, "--controller-port: FILE:1, --store-port: default, --one-port: default"),
    ],
)  # fmt: skip
def test_options_that_contradict_are_named_with_both_origins(options, file, env, message, monkeypatch, tmp_path):
    monkeypatch.setattr(standalone, "run", lambda config, reload: config.validated())
    monkeypatch.setattr(processes, "run", lambda config, reload: config.validated())
    path = tmp_path / "sarit.toml"
    path.write_text(file)
    output = invoke("standalone", "--config", str(path), *options, env=env)
    assert f"({message.replace('FILE', str(path))})" in output


def test_options_of_the_command_line_that_contradict_need_no_origins(monkeypatch):
    monkeypatch.setattr(processes, "run", lambda config, reload: config.validated())
    output = invoke("standalone", "--processes", "2", "--one-port")
    assert output == "--one-port is for one process: with --processes each store has a port of its own"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--storage", "ftp://x/y"], "storage URL 'ftp://x/y' is not supported"),
        (["--storage", "s3://key:secret@bucket/p"], "takes no user or key"),
        (["--log", "file:///x"], "is no place for a log"),
        (["--index-storage", "file:///x"], "is not one of an object store"),
        (["--host", "a:1"], "is no name or address of a machine"),
        (["--retention-interval", "nan"], "is not a finite number"),
        (["--scaling-windows", "1", "2", "3", "inf"], "is not a finite number"),
        (["--processes", "²"], "is not a number of processes"),
        (["--processes", "0"], "is not a number of processes"),
        (["--http-port", "²"], "is not a port"),
        (["--data-dir", "/etc/passwd"], "is a file"),
        (["--config", "/nowhere"], "does not exist"),
        (["--config", "/"], "is a directory"),
    ],
)  # fmt: skip
def test_value_without_sense_is_refused_before_anything_runs(options, message, run_configs):
    assert message in invoke("standalone", *options)
    assert not run_configs


def test_file_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_bytes(b"host = '\xff'")
    assert f"{path} cannot be read: it is not text in UTF-8 (byte 8)" in invoke("standalone", "--config", str(path))
    assert "SARIT_CONFIG: " in invoke("standalone", env={"SARIT_CONFIG": "/nowhere"})


def test_variable_that_kubernetes_sets_for_a_service_is_explained():
    output = invoke("standalone", env={"SARIT_STORE_PORT": "tcp://10.0.0.1:12345"})
    assert "SARIT_STORE_PORT: 'tcp://10.0.0.1:12345' is not a valid integer range" in output
    assert "set enableServiceLinks: false in the pod" in output


@pytest.mark.parametrize("place", ["file", "environment"])
def test_option_for_one_start_is_taken_from_the_command_line_alone(place, run_configs, tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text("accept-data-loss = true" if place == "file" else "")
    if place == "file":
        assert f"{path}:1: accept-data-loss is for one start" in invoke("standalone", "--config", str(path))
    else:
        assert not config_of(run_configs, env={"SARIT_ACCEPT_DATA_LOSS": "true"}).accept_data_loss
    assert config_of(run_configs, "--accept-data-loss").accept_data_loss


def test_missing_option_is_answered_with_its_three_forms():
    output = invoke("store")
    assert "--cluster is missing: give it, set SARIT_CLUSTER, or write cluster = … into the file" in output


def test_new_option_of_any_type_has_all_three_forms(tmp_path):
    @click.command(cls=Configured)
    @configured.config_option
    @click.option("--rate", type=Memory())
    @click.option("--place", type=Text(lambda: lambda text: None))
    def made(rate, place):
        click.echo(f"{rate} {place}")

    assert CliRunner().invoke(made, [], env={"SARIT_RATE": "2K", "SARIT_PLACE": "x"}).output == "2048 x\n"
