"""`sarit schema export` and `import`: all schemas come back with their ids, versions and references."""

from __future__ import annotations

import io
import json

import pytest

from sarit.cli.schema.transfer import Setting, Version, ordered, read_lines, to_line
from sarit.core.errors import Invalid
from sarit.serializers.schema import Schema, SchemaReference, SchemaVersion
from tests.unit.cli.test_schema import fake, home, run  # noqa: F401  # fixtures
from tests.unit.serializers.fake_registry import served


def fill() -> None:
    """A registry with references, a level, a softly deleted version, and a subject of a context."""
    run("add", "user", "-", "--type", "json", "--reference", "b=base:1", stdin='{"$ref": "b"}')
    run("add", "base", "-", "--type", "json", stdin='{"title": "base"}')
    run("add", ":.team:base", "point.avsc")
    run("add", "base", "-", "--type", "json", stdin='{"title": "base 2"}')
    run("delete", "base", "--version", "2", "--yes")
    run("compatibility", "set", "FULL", "--subject", "user")


def test_export_is_imported_with_ids_versions_levels_and_deletions(fake, home):  # noqa: F811
    fill()
    assert run("export", "all.jsonl", "--deleted") == "4 versions of 3 subjects in all.jsonl\n"
    lines = [json.loads(line) for line in (home / "all.jsonl").read_text().splitlines()]
    assert lines[:2] == [{"compatibility": "BACKWARD"}, {"compatibility": "FULL", "subject": "user"}]
    # What a schema refers to comes before it, though its id is higher.
    assert [(line["subject"], line["id"]) for line in lines[2:]] == [
        ("base", 2), ("user", 1), (":.team:base", 3), ("base", 4),
    ]  # fmt: skip
    assert lines[-1]["deleted"] is True
    with served() as other:
        at = ("--registry", other.url)
        assert run("import", "all.jsonl", *at) == "4 versions registered\n"
        assert other.schemas == fake.schemas
        assert other.subjects == fake.subjects
        assert (other.deleted["base"], other.config["user"], other.modes) == ({2}, "FULL", {})
        assert run("import", "all.jsonl", *at) == "0 versions registered, 4 were there\n"
        run("export", "again.jsonl", "--deleted", *at)
        again = (home / "again.jsonl").read_text().splitlines()
        assert sorted(again) == sorted((home / "all.jsonl").read_text().splitlines())
    assert "all.jsonl exists: choose another name" in run("export", "all.jsonl", code=1)


def test_without_deleted_versions_an_export_has_those_that_are_used(fake):  # noqa: F811
    fill()
    assert '"base 2"' not in run("export", "-")


def test_import_that_was_interrupted_is_repeated(fake, home):  # noqa: F811
    fill()
    run("export", "all.jsonl", "--deleted")
    with served() as other:
        other.schemas[3] = "taken"
        refused = run("import", "all.jsonl", "--registry", other.url, code=1)
        assert "version 1 of :.team:base, id 3:" in refused
        assert other.modes == {}  # others may write again
        assert list(other.subjects) == ["base", "user"]
        del other.schemas[3]
        assert run("import", "all.jsonl", "--registry", other.url) == "2 versions registered, 2 were there\n"


@pytest.mark.parametrize(("file", "schema_id"), [("point.avsc", 1), ("wider.avsc", 5)])
def test_other_version_of_that_number_is_refused_before_anything_changes(fake, file, schema_id):  # noqa: F811
    fill()
    run("export", "all.jsonl")
    with served() as other:
        run("add", "user", file, "--registry", other.url)
        other.schemas[schema_id] = other.schemas.pop(1)
        other.subjects["user"] = {1: schema_id}
        before = dict(other.schemas)
        refused = run("import", "all.jsonl", "--registry", other.url, code=1)
        assert (
            f"version 1 of user, id {schema_id}, is in the registry, and is another one, id 1, in the file" in refused
        )
        assert "--new-ids" in refused
        assert (list(other.subjects), other.schemas, other.config) == (["user"], before, {None: "BACKWARD"})


def test_new_ids_renumber_references(fake):  # noqa: F811
    fill()
    run("delete", "base", "--version", "1", "--yes")
    run("export", "all.jsonl", "--deleted")
    with served() as other:
        run("add", "base", "wider.avsc", "--registry", other.url)
        done = json.loads(run("import", "all.jsonl", "--new-ids", "--registry", other.url, "--format", "json"))
        assert done == {"file": "all.jsonl", "new": 4, "there": 0, "ids": {"1": 3, "2": 2, "3": 4, "4": 5}}
        assert json.loads(other.schemas[3])["references"] == [{"name": "b", "subject": "base", "version": 2}]
        assert other.deleted["base"] == {2, 3}


def test_registry_that_takes_no_ids_is_named_with_the_way_out(fake):  # noqa: F811
    run("add", "s", "point.avsc")
    run("export", "all.jsonl")
    with served() as other:
        other.modes[None] = "READONLY"
        refused = run("import", "all.jsonl", "--registry", other.url, code=1)
        assert "the registry takes no ids of another one for s" in refused
        assert "give the schemas new ids with --new-ids" in refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "line 1: it is no JSON"),
        (b"[]", "line 1: it is no JSON object"),
        (b'{"subject": "s", "version": 1, "id": 1, "type": "AVRO"}', 'it has no "schema" that is a text'),
        (b'{"subject": "s", "version": 0, "id": 1, "type": "AVRO", "schema": "x"}', "numbers go from 1"),
        (b'{"subject": "s", "version": true, "id": 1, "type": "AVRO", "schema": "x"}', "a whole number"),
        (b'{"subject": "s", "version": 1, "id": 9999999999, "type": "A", "schema": "x"}', "numbers go from 1"),
        (b'{"subject": "s", "version": 1, "id": 1, "type": "A", "schema": "x", "references": 1}', "are no list"),
        (b'{"subject": "s", "version": 1, "id": 1, "type": "A", "schema": "x", "references": [1]}', '"name"'),
        (b'{"compatibility": 1}', '"compatibility" that is a text'),
        (b"[" * 200_000, "line 1"),
    ],
)
def test_line_that_is_none_is_named(line, message):
    with pytest.raises(Invalid, match=r"is it a file of `sarit schema export`") as caught:
        list(read_lines(io.BytesIO(line)))
    assert message in str(caught.value)


def test_items_survive_a_file():
    used = SchemaReference("n", ":.c:s", 3)
    items = [
        Setting(None, "FULL"),
        Setting("s", "NONE"),
        Version(SchemaVersion(":.c:ä", 2, 7, Schema('{"a": "\n"}', "JSON", (used,))), deleted=True),
        Version(SchemaVersion("s", 1, 1, Schema("x"))),
    ]
    assert list(read_lines(io.BytesIO(b"\n".join(map(to_line, items))))) == items


def test_versions_follow_those_that_they_refer_to_within_their_context():
    def version(subject: str, number: int, *used: SchemaReference) -> Version:
        return Version(SchemaVersion(subject, 1, number, Schema("x", "JSON", used)))

    leaf, inner = version(":.c:leaf", 9), version(":.c:inner", 5, SchemaReference("l", "leaf", 1))
    root = version("root", 1, SchemaReference("i", ":.c:inner", 1), SchemaReference("gone", "gone", 4))
    assert ordered([root, inner, leaf]) == [leaf, inner, root]
    # A circle, which no registry has, ends all the same.
    one = version("one", 1, SchemaReference("t", "two", 1))
    two = version("two", 2, SchemaReference("o", "one", 1))
    assert sorted(each.held.id for each in ordered([one, two])) == [1, 2]
