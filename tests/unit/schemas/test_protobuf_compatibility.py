"""Whether messages of one Protobuf schema are read with another: rule by rule, and by messages drawn at random."""

import time

import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_INCOMPATIBILITIES
from sarit.schemas.protobuf_compatibility import incompatibilities
from sarit.schemas.protobuf_definition import parse_protobuf
from sarit.schemas.protobuf_parser import TYPES
from sarit.schemas.protobuf_schema import pool_of
from tests.limits import examples, patient
from tests.unit.schemas.protobuf_drawings import schemas

P2, P3, ED = 'syntax = "proto2";', 'syntax = "proto3";', 'edition = "2023";'
STATUS = "enum Status { ACTIVE = 0; INACTIVE = 1; }"
HOME = "message Home { int32 id = 1; }"


def compare(reader, writer, ours=None, theirs=None):
    return incompatibilities(parse_protobuf(reader, ours), parse_protobuf(writer, theirs))


def fields(text, head=P3, more=""):
    return f"{head} message M {{ {text} }} {more}"


# Of each change, the schemas of writer and reader, what is found, and whether Confluent's tests allow it.
CASES = {
    "package": (
        f"{P3} package a; message M {{ .a.M m = 1; }}",
        f"{P3} package b; message M {{ .b.M m = 1; }}",
        "",
        True,
    ),
    "qualified name": (fields("N n = 1; message N {}"), fields(".M.N n = 1; message N {}"), "", True),
    "field added": (fields("string a = 1;"), fields("string a = 1; string b = 2;"), "", True),
    "required field added": (
        fields("optional string a = 1;", P2),
        fields("optional string a = 1; required string b = 2;", P2),
        "M.b, field 2: the reader requires a field that the writer does not have",
        False,
    ),
    "field added within": (
        fields("message N { string a = 1; }"),
        fields("message N { string a = 1; string b = 2; }"),
        "",
        True,
    ),
    "field removed": (fields("string a = 1; string b = 2;"), fields("string a = 1;"), "", True),
    "required field removed": (
        fields("optional string a = 1; required string b = 2;", P2),
        fields("optional string a = 1;", P2),
        "",
        False,
    ),
    "number changed": (fields("string a = 1;"), fields("string a = 2;"), "", True),
    "field renamed": (fields("string a = 1;"), fields("string b = 1;"), "", True),
    "int32 to int64": (fields("int32 a = 1;"), fields("int64 a = 1;"), "", True),
    "string to bytes": (fields("string a = 1;"), fields("bytes a = 1;"), "", True),
    "int32 to enum": (
        fields("int32 a = 1;"),
        fields("Status a = 1;", more=STATUS),
        "the reader has the enum Status, and the writer int32",
        True,
    ),
    "enum to int32": (fields("Status a = 1;", more=STATUS), fields("int32 a = 1;"), "", True),
    "int32 to message": (
        fields("int32 a = 1;"),
        fields("N a = 1; message N {}"),
        "the reader has the message M.N, and the writer int32",
        False,
    ),
    "message to int32": (
        fields("N a = 1; message N {}"),
        fields("int32 a = 1; message N {}"),
        "has int32, and the writer the message M.N",
        False,
    ),
    "value renamed": (
        fields("Status a = 1;", more=STATUS),
        fields("Status a = 1;", more=STATUS.replace("INACTIVE", "OFF")),
        "",
        True,
    ),
    "field to oneof": (
        fields("string a = 1; string b = 2;"),
        fields("string a = 1; oneof o { string b = 2; int32 c = 3; }"),
        "",
        True,
    ),
    "fields to oneof": (
        fields("string a = 1; string b = 2;"),
        fields("oneof o { string a = 1; string b = 2; int32 c = 3; }"),
        "M.o: the reader has one of a, b, and the writer may set several",
        False,
    ),
    "oneof grows": (
        fields("oneof o { string a = 1; string b = 2; }"),
        fields("oneof o { string a = 1; string b = 2; int32 c = 3; }"),
        "",
        True,
    ),
    "oneof shrinks": (
        fields("oneof o { string a = 1; string b = 2; int32 c = 3; }"),
        fields("oneof o { string a = 1; string b = 2; }"),
        "M.o: the reader's oneof has no c (3), which the writer may choose",
        False,
    ),
    "oneof removed": (
        fields("oneof o { string a = 1; string b = 2; }"),
        fields("string a = 1; string b = 2;"),
        "",
        True,
    ),
    "int32 to string": (fields("int32 a = 1;"), fields("string a = 1;"), "has string, and the writer int32", False),
    "type renamed": (
        fields("N a = 1;", more="message N { string s = 1; }"),
        fields("O a = 1;", more="message N { string s = 1; } message O { string s = 1; }"),
        "M.a, field 1: the reader has the message O, and the writer the message N",
        False,
    ),
    "values of a map": (
        fields("map<string, int32> a = 1;"),
        fields("map<string, string> b = 1;"),
        "M.b, field 1, value of the map: the reader has string, and the writer int32",
        False,
    ),
    "name in a map": (
        fields("map<string, N> a = 1; message N {}"),
        fields("map<string, M.N> a = 1; message N {}"),
        "",
        True,
    ),
    "message repeated": (
        fields("N a = 1; message N {}"),
        fields("repeated N a = 1; message N {}"),
        "M.a, field 1: the reader has a repeated field, and the writer a single one",
        True,
    ),
    "string repeated": (
        fields("string a = 1;"),
        fields("repeated string a = 1;"),
        "the reader has a repeated field",
        True,
    ),
    "number repeated": (
        fields("int32 a = 1;"),
        fields("repeated int32 a = 1;"),
        "the reader has a repeated field",
        False,
    ),
    "message added": (fields(""), fields("", more="message N {}"), "", True),
    "message removed": (
        fields("", more="message N {}"),
        fields(""),
        "N: the reader's schema has no such message",
        False,
    ),
    "message moved": (fields("", more=HOME), f"{P3} {HOME} message M {{}}", "", True),
    "enum removed": (fields("", more=STATUS), fields(""), "", True),
}
# The module says why.
OTHERWISE = ("required field removed", "int32 to enum", "message repeated", "string repeated")


@pytest.mark.parametrize("name", CASES)
def test_change_is_allowed_as_in_confluents_registry(name):
    writer, reader, why, allowed = CASES[name]
    found = compare(reader, writer)
    assert (why in found[0] and len(found) == 1) if why else found == []
    assert (allowed != (found == [])) == (name in OTHERWISE)


IMPORTS = (
    # What the writer's file imports, and the reader's; each has Home in a package of its own.
    (
        "message Home { int32 id = 1; }",
        "x",
        "message Home { string id = 1; }",
        "x",
        "Home.id, field 1: the reader has string",
    ),
    ("message Home { int32 id = 1; }", "x", "message Home { int32 id = 1; }", "y", ""),
    ("message Out { message Home { int32 id = 1; } }", "x", "message Out { message Home { int32 id = 1; } }", "y", ""),
    (
        "message Out { message Home { int32 id = 1; } }",
        "x",
        "message Out { message Home { string id = 1; } }",
        "y",
        "Out.Home.id, field 1: the reader has string, and the writer int32",
    ),
)


@pytest.mark.parametrize(("theirs", "their_package", "ours", "our_package", "why"), IMPORTS)
def test_imported_messages_are_compared_without_their_packages(theirs, their_package, ours, our_package, why):
    def user(package, text):
        name = "Out.Home" if "Out" in text else "Home"
        return f'{P3} import "h"; message M {{ .{package}.{name} home = 1; }}', {"h": f"{P3} package {package}; {text}"}

    reader, our_references = user(our_package, ours)
    writer, their_references = user(their_package, theirs)
    found = compare(reader, writer, our_references, their_references)
    assert (why in found[0] and len(found) == 1) if why else found == []


def test_message_may_move_from_an_import_but_not_to_one():
    inside = f"{P3} message M {{ Home home = 1; }} {HOME}"
    outside = f'{P3} import "h"; message M {{ .x.Home home = 1; }}', {"h": f"{P3} package x; {HOME}"}
    assert compare(inside, outside[0], None, outside[1]) == []
    assert compare(outside[0], inside, outside[1], None) == ["Home: the reader's schema has no such message"]


RULES = (
    # The reader's schema, the writer's, and the beginning of what is found: "" for nothing.
    (fields("uint64 a = 1;"), fields("uint32 a = 1;"), ""),
    (fields("int64 a = 1;"), fields("uint32 a = 1;"), ""),
    (fields("int32 a = 1;"), fields("uint32 a = 1;"), "M.a, field 1: the reader has int32, and the writer uint32"),
    (fields("uint64 a = 1;"), fields("int32 a = 1;"), "M.a"),
    (fields("sint64 a = 1;"), fields("sint32 a = 1;"), ""),
    (fields("int32 a = 1;"), fields("sint32 a = 1;"), "M.a"),
    (fields("uint32 a = 1;"), fields("bool a = 1;"), ""),
    (fields("bool a = 1;"), fields("uint32 a = 1;"), "M.a"),
    (fields("fixed64 a = 1;"), fields("fixed32 a = 1;"), "M.a"),
    (fields("double a = 1;"), fields("float a = 1;"), "M.a"),
    (fields("string a = 1;"), fields("bytes a = 1;"), "M.a"),
    (fields("repeated int64 a = 1;"), fields("repeated bool a = 1;"), ""),
    (fields("int32 a = 1;"), fields("repeated int32 a = 1;"), "M.a, field 1: the writer has a repeated field"),
    (fields("map<int64, bytes> a = 1;"), fields("map<int32, string> a = 1;"), ""),
    (
        fields("map<int32, bytes> a = 1;"),
        fields("map<int64, string> a = 1;"),
        "M.a, field 1, key of the map: the reader",
    ),
    (
        fields("map<int32, N> a = 1; message N { int32 a = 1; }"),
        fields("map<int32, N> a = 1; message N { bool a = 1; }"),
        "",
    ),
    (
        fields("map<int32, N> a = 1; message N { bool a = 1; }"),
        fields("map<int32, N> a = 1; message N { int32 a = 1; }"),
        "M.N.a, field 1: the reader has bool",
    ),
    (
        fields("map<int32, bool> a = 1;"),
        fields("repeated E a = 1; message E { int32 key = 1; bool value = 2; }"),
        "M.a, field 1: the reader has a map, and the writer none",
    ),
    (
        fields("required int32 a = 1;", P2),
        fields("optional int32 a = 1;", P2),
        "M.a, field 1: the reader requires a field",
    ),
    (fields("optional int32 a = 1;", P2), fields("required int32 a = 1;", P2), ""),
    (fields("required int32 a = 1;", P2), fields("int32 a = 1 [features.field_presence = LEGACY_REQUIRED];", ED), ""),
    (fields("int32 a = 1 [features.field_presence = LEGACY_REQUIRED];", ED), fields("int32 a = 1;", ED), "M.a"),
    (
        f"{ED} option features.message_encoding = DELIMITED; message M {{ M m = 1; }}",
        fields("M m = 1;", ED),
        "M.m, field 1: one of reader and writer has a group",
    ),
    (
        fields("optional group G = 1 { }", P2),
        fields("optional G g = 1; message G { }", P2),
        "M.g, field 1: one of reader and",
    ),
    (
        fields("optional group G = 1 { }", P2),
        fields("G g = 1 [features.message_encoding = DELIMITED]; message G { }", ED),
        "",
    ),
    # Extensions are fields of what they extend.
    (
        fields("extensions 5;", P2, "extend M { optional int64 x = 5; }"),
        fields("extensions 5;", P2, "extend M { optional int32 x = 5; }"),
        "",
    ),
    (
        fields("extensions 5;", P2, "extend M { optional string x = 5; }"),
        fields("extensions 5;", P2, "extend M { optional int32 x = 5; }"),
        "M.x, field 5: the reader has string",
    ),
    (
        fields("optional string x = 5;", P2),
        fields("extensions 5;", P2, "extend M { optional int32 x = 5; }"),
        "M.x, field 5",
    ),
    # Enums: an open one of the reader takes any number.
    (fields("E a = 1;", more="enum E { A = 0; }"), fields("E a = 1;", more="enum E { A = 0; B = 1; }"), ""),
    (fields("E a = 1;", more="enum E { A = 0; C = 1; }"), fields("F a = 1;", more="enum F { A = 0; B = 1; }"), ""),
    (
        fields("E a = 1;", more="enum E { A = 0; B = 2; }"),
        fields("E a = 1;", more="enum E { A = 0; B = 1; }"),
        "M.a, field 1: names of the writer's enum stand for other numbers in the reader's: B (1)",
    ),
    (
        fields("optional E a = 1;", P2, "enum E { A = 0; }"),
        fields("optional E a = 1;", P2, "enum E { A = 0; B = 1; }"),
        "M.a, field 1: the reader's closed enum has no B (1)",
    ),
    (
        fields("optional E a = 1;", P2, "enum E { A = 0; C = 1; }"),
        fields("optional E a = 1;", P2, "enum E { A = 0; B = 1; }"),
        "",
    ),
    # A proto3 `optional` is no choice.
    (fields("optional int32 a = 1; optional int32 b = 2;"), fields("int32 a = 1; int32 b = 2;"), ""),
    (fields("int32 a = 1;"), fields("optional int32 a = 1; optional int32 b = 2;"), ""),
    (
        fields("oneof o { int32 a = 1; int32 b = 2; }"),
        fields("oneof p { int32 a = 1; } oneof q { int32 b = 2; }"),
        "M.o: the",
    ),
    (fields("oneof o { int32 a = 1; } int32 b = 2;"), fields("oneof o { int32 a = 1; int32 b = 2; }"), ""),
    (fields("optional int32 a = 1;"), fields("oneof o { int32 a = 1; int32 b = 2; }"), ""),
    # Messages within themselves.
    (fields("M m = 1; int64 a = 2;"), fields("M m = 1; int32 a = 2;"), ""),
    (fields("repeated M m = 1; string a = 2;"), fields("repeated M m = 1; int32 a = 2;"), "M.a, field 2"),
)


@pytest.mark.parametrize(("reader", "writer", "why"), RULES)
def test_rule(reader, writer, why):
    found = compare(reader, writer)
    assert (found and found[0].startswith(why)) if why else found == []


WIDER = {
    "bool": {"int32", "int64", "uint32", "uint64"},
    "E": {"int32", "int64"},
    "int32": {"int64"},
    "uint32": {"uint64", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
}
KINDS = (*TYPES, "E", "N")


def test_only_wider_types_are_read():
    parsed = {one: parse_protobuf(fields(f"{one} a = 1; enum E {{ Z = 0; }} message N {{}}")) for one in KINDS}
    for writer in KINDS:
        found = {one for one in KINDS if not incompatibilities(parsed[one], parsed[writer])}
        assert found == {writer} | WIDER.get(writer, set())


@given(schemas())
def test_drawn_schema_reads_itself(text):
    again = parse_protobuf(text + " // again\n message Z { }")
    assert incompatibilities(again, parse_protobuf(text)) == []
    assert (
        incompatibilities(parse_protobuf(text), again) == ["Z: the reader's schema has no such message"] or "p." in text
    )


VALUES = {
    "int32": (0, 1, -1, -(1 << 31)),
    "int64": (0, 1, 1 << 40, -(1 << 63)),
    "uint32": (0, 1, (1 << 32) - 1),
    "uint64": (0, 1, (1 << 64) - 1),
    "sint32": (0, -(1 << 31)),
    "sint64": (0, 1 << 62),
    "bool": (False, True),
    "string": ("", "x", "é"),
    "bytes": (b"", b"x", b"\xff"),
    "E": (0, 1),
    "F": (0, 2),
    "double": (0.0, 1.5),
    "fixed32": (0, 1 << 31),
    "N": (None,),
}


@st.composite
def messages(draw):
    """Draw the fields of a message: number -> label, type, and the oneof (0: none)."""
    found = {}
    for number in (1, 2, 3):
        if draw(st.integers(0, 3)):
            label = draw(st.sampled_from(("optional", "optional", "repeated", "required")))
            oneof = draw(st.sampled_from((0, 0, 1))) if label == "optional" else 0
            found[number] = label, draw(st.sampled_from(tuple(VALUES))), oneof
    return found


def source(drawn):
    plain = [f"{label} {kind} f{number} = {number};" for number, (label, kind, oneof) in drawn.items() if not oneof]
    chosen = [f"{kind} f{number} = {number};" for number, (_, kind, oneof) in drawn.items() if oneof]
    inside = f"oneof o {{ {' '.join(chosen)} }}" if chosen else ""
    enums = "enum E { E0 = 0; E1 = 1; } enum F { F0 = 0; F2 = 2; }"
    return fields(" ".join(plain) + inside + "message N { optional bool b = 1; }", P2, enums)


def message_class(schema):
    return message_factory.GetMessageClass(pool_of(schema).FindMessageTypeByName("M"))


@st.composite
def pairs(draw):
    """Draw two messages: apart, or the second with some fields of the first."""
    first, second = draw(messages()), draw(messages())
    return first, second | {number: one for number, one in first.items() if draw(st.booleans())}


@settings(max_examples=examples(3000))
@given(pairs(), st.data())
def test_every_message_of_the_writer_is_read_by_a_compatible_reader(pair, data):
    ours, theirs = pair
    reader, writer = parse_protobuf(source(ours)), parse_protobuf(source(theirs))
    if incompatibilities(reader, writer):
        return
    given_message = message_class(writer)()
    for number, (label, kind, _) in theirs.items():
        if label == "required" or data.draw(st.booleans()):
            values = [data.draw(st.sampled_from(VALUES[kind])) for _ in range(2 if label == "repeated" else 1)]
            fill(given_message, number, label, kind, values)
    try:
        read = message_class(reader).FromString(given_message.SerializeToString())
    except DecodeError:
        pytest.fail("the reader refuses a message of a compatible writer")
    assert read.IsInitialized()
    for field, value in given_message.ListFields():
        if field.number in ours:
            assert plain(getattr(read, field.name), ours[field.number][1]) == plain(value, ours[field.number][1])


def fill(message, number, label, kind, values):
    name = f"f{number}"
    if kind == "N":
        inner = getattr(message, name)
        (inner.add() if label == "repeated" else inner).b = True
    elif label == "repeated":
        getattr(message, name).extend(values)
    else:
        setattr(message, name, values[0])


def plain(value, kind):
    """Return a value for a comparison: a string as the bytes that a reader of bytes has."""
    if isinstance(value, str | bytes | bool | int | float):
        return value.encode() if isinstance(value, str) and kind == "bytes" else value
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    return [plain(one, kind) for one in value]


def test_reasons_are_bounded_and_short():
    many = "".join(f"int32 a{'x' * 400}{n} = {n};" for n in range(1, 300))
    found = compare(fields(many.replace("int32", "string")), fields(many))
    assert len(found) == MAX_INCOMPATIBILITIES
    assert max(map(len, found)) < 400


@pytest.mark.timeout(120)
def test_large_schemas_are_compared_or_refused_soon():
    text = P3 + "".join(f"message M{n} {{ M{n // 2} a = 1; int32 b = 2; }}" for n in range(9000))
    large, other = parse_protobuf(text), parse_protobuf(text.replace("int32", "int64"))
    before = time.process_time()
    assert incompatibilities(other, large) == []
    assert len(incompatibilities(large, other)) == MAX_INCOMPATIBILITIES
    assert time.process_time() - before < patient(4)
    # One enum of many values, in many fields.
    values = "".join(f"A{n} = {n};" for n in range(4000))
    uses = "".join(f"E a{n} = {n};" for n in range(1, 400))
    wide = parse_protobuf(fields(uses, more=f"enum E {{ {values} }}"))
    before = time.process_time()
    with pytest.raises(Invalid, match="too large to be compared"):
        incompatibilities(wide, parse_protobuf(fields(uses, more=f"enum E {{ {values} B = 5000; }}")))
    assert time.process_time() - before < patient(4)
