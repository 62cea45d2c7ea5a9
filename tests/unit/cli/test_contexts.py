"""`sarit context`, and which controller a command asks."""

from __future__ import annotations

import json
import os
import stat

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from sarit.cli import names
from sarit.cli.main import cli
from sarit.cli.options import controller_option, registry_option
from sarit.client.core import contexts
from sarit.client.core.contexts import Context, Contexts, contexts_path, decode_contexts


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user without contexts."""
    for name in ("SARIT_CONTROLLER", "SARIT_CONTEXT", "SARIT_REGISTRY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def run(*args: str, env: dict[str, str] | None = None, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["context", *args], env=env)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


@click.command()
@controller_option
def asked(controller: str) -> None:
    """Prints what it would ask."""
    click.echo(controller)


def ask(*args: str, env: dict[str, str] | None = None) -> str:
    return CliRunner().invoke(asked, args, env=env).output.strip()


def test_contexts_are_added_used_shown_listed_and_deleted(home):
    assert run("list") == "CURRENT  NAME  CONTROLLER  DESCRIPTION\n"
    run("add", "prod", "--controller", "p1:9090,p2:9090", "--description", "the real one")
    assert ask() == "127.0.0.1:9090"
    assert run("add", "test", "--controller", "t1:9090", "--use").endswith("used from now on\n")
    assert ask() == "t1:9090"
    assert run("use", "prod") == "context prod: p1:9090,p2:9090\n"
    assert ask() == "p1:9090,p2:9090"
    rows = json.loads(run("list", "--format", "json"))
    assert [(row["name"], row["current"]) for row in rows] == [("prod", True), ("test", False)]
    assert "the real one" in run("show", "prod")
    assert json.loads(run("show", "--format", "json")) == {
        "controller": "p1:9090,p2:9090", "context": "prod", "from": "sarit context use",
    }  # fmt: skip
    assert "they ask 127.0.0.1:9090 now" in run("delete", "prod")
    assert ask() == "127.0.0.1:9090"
    run("use", "test")
    run("use", "--none")
    assert ask() == "127.0.0.1:9090"


def test_flag_wins_over_variable_over_choice_and_address_over_name(home):
    for name in ("a", "b", "c"):
        run("add", name, "--controller", f"{name}:1")
    run("use", "a")
    both = {"SARIT_CONTROLLER": "address:1", "SARIT_CONTEXT": "b"}
    assert ask() == "a:1"
    assert ask(env={"SARIT_CONTEXT": "b"}) == "b:1"
    assert ask(env=both) == "address:1"
    assert ask("--context", "c", env=both) == "c:1"
    assert ask("--controller", "flag:1", env=both) == "flag:1"
    assert "--controller flag:1 and --context c contradict each other: give one" in ask(
        "--controller", "flag:1", "--context", "c"
    )


def test_unknown_context_is_answered_with_the_nearest():
    run("add", "production", "--controller", "p:1")
    assert "there is no context 'prodction': did you mean 'production'?" in ask("--context", "prodction")
    assert "SARIT_CONTEXT: there is no context 'x': `sarit context add`" in ask(env={"SARIT_CONTEXT": "x"})
    assert "did you mean 'production'" in run("use", "productio", code=2)
    assert "there is no context" in run("delete", "x", code=2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add", "x"), "Missing option '--controller'"),
        (("add", "x", "--controller", "h:notaport"), "is no address of a controller"),
        (("add", "a/b", "--controller", "h:1"), "is no name"),
        (("use",), "give the NAME of a context, or --none"),
    ],
)
def test_wrong_command_is_refused_and_nothing_is_written(args, message, home):
    assert message in run(*args, code=2)
    assert not (home / "sarit").exists()


def test_context_that_is_there_is_replaced_only_when_asked():
    run("add", "x", "--controller", "h:1")
    assert "there is a context 'x' at h:1: give --replace" in run("add", "x", "--controller", "h:2", code=2)
    run("add", "x", "--controller", "h:2", "--replace")
    assert ask("--context", "x") == "h:2"


def test_file_of_contexts_is_for_its_user_alone(home):
    run("add", "x", "--controller", "h:1", "--description", 'a "b" \\ \n\x7f é')
    path = home / "sarit" / "contexts.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["contexts.toml"]
    assert decode_contexts(path.read_text()).by_name["x"] == Context("h:1", 'a "b" \\ \n\x7f é')


def test_contexts_survive_encoding():
    made = Contexts("b", {"a.1": Context("h:1"), "b": Context("[::1]:9090,h:2", "two")})
    assert decode_contexts(made.encode()) == made
    assert decode_contexts(Contexts().encode()) == Contexts()


@pytest.mark.parametrize("text", ["current = 1", "contexts = 1", "[contexts.a]\nx = 1", "what"])
def test_file_that_is_damaged_is_named(text, home):
    path = home / "sarit" / "contexts.toml"
    path.parent.mkdir()
    path.write_text(text)
    assert f"{path} cannot be read" in run("list", code=1)
    assert ask("--controller", "h:1") == "h:1"  # it is not needed
    assert "cannot be read" in ask()


def test_path_follows_xdg_and_a_relative_one_does_not_count():
    assert str(contexts_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"})) == "/x/sarit/contexts.toml"
    assert str(contexts_path({"HOME": "/h"})) == "/h/.config/sarit/contexts.toml"
    assert str(contexts_path({"XDG_CONFIG_HOME": "x", "HOME": "/h"})) == "/h/.config/sarit/contexts.toml"


def completed(args: list[str], incomplete: str) -> list[str]:
    return [item.value for item in ShellComplete(cli, {}, "sarit", "_SARIT").get_completions(args, incomplete)]


def test_names_of_contexts_are_completed():
    run("add", "prod", "--controller", "p:1")
    run("add", "test", "--controller", "t:1")
    assert completed(["scope", "list", "--context"], "") == ["prod", "test"]
    assert completed(["context", "use"], "p") == ["prod"]
    assert completed(["context", "delete"], "x") == []


def test_completion_of_names_asks_the_context(monkeypatch):
    asked_for = []

    def connect(address, **options):
        asked_for.append(address)
        raise OSError

    monkeypatch.setattr("sarit.connect", connect)
    run("add", "prod", "--controller", "p:1")
    run("add", "test", "--controller", "t:1", "--use")
    completed(["stream", "list"], "")
    completed(["stream", "list", "--context", "prod"], "")
    completed(["stream", "list", "--controller", "c:1"], "")
    assert asked_for == ["t:1", "p:1", "c:1"]
    assert names.SCOPE.name == "SCOPE"


def test_every_command_that_asks_a_controller_takes_a_context():
    found = 0

    def visit(command: click.Command, path: str) -> None:
        nonlocal found
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None
                visit(inner, f"{path} {name}")
            return
        options = {option for param in command.params for option in param.opts}
        if "--controller" in options and "context add" not in path:
            found += 1
            assert "--context" in options, path

    visit(cli, "sarit")
    assert found > 30


LOGIN = (*contexts.LOGIN_VARIABLES.values(), "SARIT_PASSWORD", "SARIT_TOKEN")


@click.command()
@controller_option
def logged_in(controller: str) -> None:
    """Prints how it would log in."""
    click.echo(json.dumps({name: os.environ[name] for name in LOGIN if name in os.environ}))


def login(*args: str, **environ: str | None) -> dict[str, str]:
    env = {**dict.fromkeys(LOGIN), **environ}
    done = CliRunner().invoke(logged_in, args, env=env)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.fixture
def secured(home):
    """A context with a user, its password in a file."""
    for name in ("password", "ca.pem"):
        (home / name).write_text("hidden-secret\n")
    files = ("--password-file", str(home / "password"), "--ca-file", str(home / "ca.pem"))
    run("add", "safe", "--controller", "tls://h:1", "--user", "ann", *files)
    return {
        "SARIT_USER": "ann",
        "SARIT_PASSWORD_FILE": str(home / "password"),
        "SARIT_CA_FILE": str(home / "ca.pem"),
    }


def test_context_says_how_to_log_in_and_wins_over_the_environment(secured):
    assert login("--context", "safe") == secured
    assert login("--context", "safe", SARIT_TOKEN="t", SARIT_PASSWORD="p", SARIT_USER="bob") == secured
    assert login(SARIT_CONTEXT="safe") == secured
    run("use", "safe")
    assert login() == secured
    assert login("--controller", "other:1", SARIT_USER="bob") == {"SARIT_USER": "bob"}


def test_command_with_a_context_leaves_the_environment_as_it_was(secured, monkeypatch):
    monkeypatch.setenv("SARIT_USER", "bob")
    monkeypatch.setenv("SARIT_TOKEN", "t")
    before = dict(os.environ)
    ran = []

    @click.command()
    @controller_option
    def noted(controller: str) -> None:
        ran.append((os.environ["SARIT_USER"], os.environ.get("SARIT_TOKEN")))

    noted.main(["--context", "safe"], standalone_mode=False)
    assert ran == [("ann", None)]
    assert dict(os.environ) == before


def test_secrets_are_neither_in_the_file_of_contexts_nor_shown(secured, home):
    path = home / "sarit" / "contexts.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    run("use", "safe")
    shown = run("show") + run("show", "safe") + run("list") + run("show", "--format", "json")
    assert "ann" in shown
    assert "hidden-secret" not in shown + path.read_text()
    assert decode_contexts(path.read_text()).by_name["safe"].login["user"] == "ann"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--user", "ann", "--token-file", "FILE"), "--user and --token-file contradict"),
        (("--password-file", "FILE"), "--password-file needs --user"),
        (("--cert-file", "FILE"), "--cert-file and --key-file belong together"),
        (("--ca-file", "nowhere.pem"), "does not exist"),
    ],
)
def test_log_in_that_contradicts_itself_is_refused(home, options, message):
    (home / "file").write_text("x")
    given = [str(home / "file") if one == "FILE" else one for one in options]
    assert message in " ".join(run("add", "x", "--controller", "h:1", *given, code=2).split())


@click.command()
@registry_option
def asked_registry(registry: str) -> None:
    """Prints which registry it would ask, and how it would log in there."""
    click.echo(f"{registry} {os.environ.get('SARIT_USER', '-')}")


def ask_registry(*args: str, **env: str | None) -> str:
    return CliRunner().invoke(asked_registry, args, env={"SARIT_USER": None, **env}).output.strip()


def test_registry_is_that_of_the_option_the_variable_or_the_context(home):
    assert ask_registry() == "http://127.0.0.1:8081 -"
    run("add", "prod", "--controller", "p:1", "--registry", "https://p:8081", "--user", "ann")
    assert [line.split() for line in run("show", "prod").splitlines()[-2:]] == [
        ["registry", "https://p:8081"],
        ["user", "ann"],
    ]
    run("use", "prod")
    assert ask_registry() == ask_registry("--context", "prod") == "https://p:8081 ann"
    # Whoever names another registry does not send it the password of the context, unless asked to.
    assert ask_registry(SARIT_REGISTRY_URL="http://v:1") == "http://v:1 -"
    assert ask_registry("--registry", "http://o:1", SARIT_REGISTRY_URL="http://v:1") == "http://o:1 -"
    assert ask_registry("--registry", "https://o:1", "--context", "prod") == "https://o:1 ann"
    assert ask_registry(SARIT_CONTROLLER="c:1") == "http://127.0.0.1:8081 -"
    assert decode_contexts((home / "sarit" / "contexts.toml").read_text()).by_name["prod"].registry == "https://p:8081"


def test_context_without_a_registry_does_not_mean_the_one_of_this_machine():
    run("add", "test", "--controller", "t:1", "--use")
    printed = " ".join(ask_registry().split())
    assert "the context 'test' names no schema registry: give --registry URL or set SARIT_REGISTRY_URL" in printed
    assert "names no schema registry" in ask_registry("--context", "test")
    assert ask_registry("--registry", "http://o:1") == "http://o:1 -"


@pytest.mark.parametrize(
    "url", ["h:8081", "ftp://h", "http://", "http://[", "http://h:x", "http://h?x=1", "http://h#a"]
)
def test_url_that_is_none_is_refused(url):
    assert f"{url} is no URL of a schema registry: write http://HOST:PORT" in ask_registry("--registry", url)
    assert "is no URL of a schema registry" in run("add", "x", "--controller", "h:1", "--registry", url, code=2)


def test_password_in_a_url_is_refused_and_not_shown():
    printed = ask_registry("--registry", "http://ann:hidden@h:1")
    assert "a registry's URL has no user and password: set SARIT_USER and SARIT_PASSWORD" in printed
    assert "hidden" not in printed
