"""`sarit schema`, on a registry in memory that is reached over HTTP."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from sarit.cli.main import cli
from sarit.core.errors import SaritError
from tests.unit.serializers.fake_registry import served

POINT = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}'
WIDER = '{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}'


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    """A user without contexts and without a log-in."""
    for name in (
        "SARIT_CONTROLLER",
        "SARIT_CONTEXT",
        "SARIT_REGISTRY_URL",
        "SARIT_USER",
        "SARIT_TOKEN",
        "SARIT_CA_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "point.avsc").write_text(POINT)
    (tmp_path / "wider.avsc").write_text(WIDER)
    return tmp_path


@pytest.fixture
def fake(monkeypatch):
    with served() as fake:
        monkeypatch.setenv("SARIT_REGISTRY_URL", fake.url)
        yield fake


def run(*words: str, code: int = 0, stdin: str | bytes = "") -> str:
    """What a command prints on both outputs, with the message of the error that ends it."""
    done = CliRunner().invoke(cli, ["schema", *words], input=stdin)
    if isinstance(done.exception, SaritError):
        assert code == 1, done.exception
        return f"{done.output}{done.exception}"
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.output


def rows(*words: str, stdin: str = ""):
    return json.loads(run(*words, "--format", "json", stdin=stdin))


def test_schemas_are_added_listed_and_shown(fake):
    assert run("list") == "SUBJECT\n"
    assert run("add", "shop.points", "point.avsc") == "shop.points has it as version 1: schema id 1\n"
    assert run("add", "shop.points", "point.avsc") == "shop.points has it as version 1 already: schema id 1\n"
    added = {"subject": "shop.points", "version": 2, "id": 2, "type": "AVRO", "created": True}
    assert rows("add", "shop.points", "wider.avsc") == added
    assert run("list").splitlines() == ["SUBJECT", "shop.points"]
    assert rows("list", "--latest") == [{"subject": "shop.points", "version": 2, "id": 2, "type": "AVRO"}]
    assert rows("list", "--prefix", "other") == []
    assert [row["version"] for row in rows("list", "--subject", "shop.points")] == [1, 2]
    assert rows("show", "shop.points", "--version", "1") == {
        "subject": "shop.points", "version": 1, "id": 1, "type": "AVRO", "schema": POINT,
    }  # fmt: skip
    assert '"type": "double"' in run("show", "shop.points")
    assert run("show", "shop.points", "--version", "1", "--text") == f"{POINT}\n"
    assert rows("show", "--id", "2")["subjects"] == ["shop.points:2"]


def test_schema_of_any_type_with_references_comes_from_a_file_or_a_pipe(fake, home):
    (home / "a.proto").write_text('syntax = "proto3"; message A {}\n')
    run("add", "a", "a.proto")
    run("add", ":.team:a", "a.proto")
    user = 'syntax = "proto3"; import "a.proto"; message B { A a = 1; }'
    words = ("--type", "protobuf", "--reference", "a.proto=a:1", "--reference", "b.proto=:.team:a:1")
    assert rows("add", "b", "-", *words, stdin=user)["type"] == "PROTOBUF"
    assert rows("show", "b")["references"] == ["a.proto=a:1", "b.proto=:.team:a:1"]
    assert run("add", "c", "-", "--type", "json", stdin="\ufeff{}").endswith("schema id 3\n")
    assert rows("show", "c")["schema"] == "{}"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "message"),
    [
        (("add", "s", "-"), "{}", 2, "-: the name does not say what the schema is: give --type avro, json, protobuf"),
        (("add", "s", "-", "--type", "avro"), " \n", 1, "- is empty: a schema has a text"),
        (("add", "s", "-", "--type", "avro"), b"\xff", 1, "- is no text in UTF-8: byte 0 is wrong"),
        (("add", "s", "-", "--type", "avro"), "x" * 1_048_577, 1, "the most that a schema may have"),
        (("add", "", "point.avsc"), "", 2, "a subject has a name"),
        (("add", "s", "none.avsc"), "", 2, "does not exist"),
        (("add", "s", "-", "--type", "avro"), "broken", 1, "Invalid schema (42201)"),
        (("add", "s", "point.avsc", "--reference", "x"), "", 2, "x is no reference: write NAME=SUBJECT:VERSION"),
        (("add", "s", "point.avsc", "--reference", "x=y:latest"), "", 2, "is no reference"),
        (("show",), "", 2, "give a SUBJECT, or --id"),
        (("show", "s", "--id", "1"), "", 2, "give a SUBJECT, or --id"),
        (("show", "--id", "1", "--version", "1"), "", 2, "leave --version and --deleted away"),
        (("show", "s", "--version", "0"), "", 2, "0 is no version: give a number from 1 on, or latest"),
        (("show", "s", "--text", "--format", "json"), "", 2, "leave --format json away"),
        (("show", "--id", "9"), "", 1, "Schema not found (40403)"),
        (("list", "--subject", "s", "--latest"), "", 2, "leave --prefix and --latest away"),
        (("delete", "s"), "", 2, "There is no terminal to ask on: give --yes to confirm"),
        (("compatibility", "set", "SIDEWAYS"), "", 2, "is not one of 'none', 'backward'"),
    ],
)
def test_what_is_wrong_gets_one_message(fake, words, stdin, code, message):
    assert message in " ".join(run(*words, code=code, stdin=stdin).split())
    assert not fake.subjects


def test_unknown_subject_is_answered_with_the_nearest(fake):
    run("add", "shop.points", "point.avsc")
    assert "Subject 'shop.point' not found. (40401); there is shop.points" in run("show", "shop.point", code=1)
    assert run("show", "shop.points", "--version", "7", code=1).endswith("Version not found (40402)")


def test_incompatible_schema_is_refused_with_each_reason(fake):
    run("add", "s", "point.avsc")
    bad = '{"doc": "incompatible"}'
    refused = run("add", "s", "-", "--type", "avro", stdin=bad, code=1)
    assert "- field a was removed\n" in refused
    assert "s does not allow this schema, by its compatibility BACKWARD: change the schema" in refused
    assert run("check", "s", "-", "--type", "avro", stdin=bad, code=1) == (
        "- field a was removed\nnot compatible with s (BACKWARD)\n"
    )
    checked = CliRunner().invoke(cli, ["schema", "check", "s", "-", "--type", "avro", "--format", "json"], input=bad)
    assert json.loads(checked.output) == {
        "subject": "s", "compatible": False, "compatibility": "BACKWARD", "reasons": ["field a was removed"],
    }  # fmt: skip
    assert run("check", "s", "wider.avsc", "--version", "1") == "compatible with s (BACKWARD)\n"
    assert ("POST", "/compatibility/subjects/s/versions/1?verbose=true") in fake.requests
    assert rows("list", "--subject", "s") == [{"version": 1, "id": 1, "type": "AVRO"}]


def test_compatibility_is_shown_set_and_removed(fake):
    assert rows("compatibility", "show") == {"subject": "-", "compatibility": "BACKWARD", "of": "all subjects"}
    assert run("compatibility", "set", "full", "--subject", "s") == "s: FULL\n"
    assert rows("compatibility", "show", "--subject", "s")["of"] == "s"
    assert rows("compatibility", "show", "--subject", "other")["of"] == "all subjects"
    assert run("compatibility", "remove", "--subject", "s") == "s: BACKWARD\n"
    run("compatibility", "set", "NONE")
    assert rows("compatibility", "show", "--subject", "s")["compatibility"] == "NONE"


def test_versions_and_subjects_are_deleted_softly_and_for_ever(fake):
    run("add", "s", "point.avsc")
    run("add", "s", "wider.avsc")
    run("add", "other", "point.avsc")
    assert run("delete", "s", "--version", "latest", "--yes") == "1 version of s deleted softly\n"
    assert [row["version"] for row in rows("list", "--subject", "s")] == [1]
    assert rows("list", "--subject", "s", "--deleted")[1] == {"version": 2, "id": 2, "type": "AVRO", "deleted": True}
    assert rows("delete", "s", "--yes") == {"subject": "s", "versions": [1], "permanent": False}
    assert [row["subject"] for row in rows("list")] == ["other"]
    shown = rows("list", "--deleted", "--latest")
    assert [(row["subject"], row["version"], row["deleted"]) for row in shown] == [("s", 2, True), ("other", 1, False)]
    assert run("delete", "s", "--permanent", "--yes") == "2 versions of s deleted for ever\n"
    assert [row["subject"] for row in rows("list", "--deleted")] == ["other"]


def test_registry_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setenv("SARIT_REGISTRY_URL", "http://127.0.0.1:1")
    refused = run("list", code=1)
    assert "the schema registry at http://127.0.0.1:1 does not answer" in refused
    assert "(a node serves one with --registry on)" in refused


def test_command_logs_in_as_the_environment_says(fake, monkeypatch):
    monkeypatch.setenv("SARIT_USER", "ann")
    monkeypatch.setenv("SARIT_PASSWORD", "p")
    run("list")
    assert fake.seen_authorization == "Basic YW5uOnA="
    monkeypatch.delenv("SARIT_USER")
    monkeypatch.setenv("SARIT_TOKEN", "t")
    run("list")
    assert fake.seen_authorization == "Bearer t"
    refused = run("list", "--registry", "http://registry.example:8081", code=1)
    assert "is not protected on its way: use https://" in refused


def test_subjects_are_completed(fake):
    run("add", "shop.points", "point.avsc")
    run("add", "plant.points", "point.avsc")
    found = ShellComplete(cli, {}, "sarit", "_SARIT").get_completions(["schema", "show"], "shop")
    assert [item.value for item in found] == ["shop.points"]
    fake.raw = (500, b"")
    assert ShellComplete(cli, {}, "sarit", "_SARIT").get_completions(["schema", "show"], "shop") == []
