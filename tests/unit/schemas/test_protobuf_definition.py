"""Protobuf schemas from outside: protoc as the oracle, what is refused, and in bounded time."""

import base64
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sarit.core.errors import Invalid
from sarit.schemas.limits import MAX_PROTOBUF_LEVELS, MAX_SCHEMA_BYTES, MAX_SCHEMA_REFERENCES
from sarit.schemas.protobuf_definition import parse_descriptor_set, parse_protobuf
from sarit.schemas.protobuf_forms import descriptor_set, message_names, normal_text, serialized
from tests.limits import examples, patient
from tests.unit.schemas.protobuf_drawings import schemas
from tests.unit.schemas.protoc import BUNDLED, SITE, compiled, in_base64, main_file

OPTIONS = """
syntax = "proto3";
package k;
import "google/protobuf/descriptor.proto";
enum Size { NONE = 0; LARGE = 3; }
message Rule {
  int32 at = 1; repeated double scale = 2; Rule inner = 3; map<string, Rule> named = 4; bytes raw = 5;
  repeated Rule all = 6; Size size = 7; string text = 8; map<int32, bool> flags = 9; optional float f = 10;
}
extend google.protobuf.FileOptions { Rule file_rule = 50000; }
extend google.protobuf.FieldOptions { repeated Rule rules = 50000; repeated Size sizes = 50001; int64 least = 50002; }
extend google.protobuf.EnumValueOptions { string label = 50000; }
option (file_rule).inner.at = 8;
message In { extend google.protobuf.MessageOptions { bool marked = 50001; } }
"""
USES = """
syntax = "proto3";
package k.uses;
import "k/options.proto";
option java_package = "com.x";
option (k.file_rule) = {
  at: 5 scale: [1, 2.5, -inf, nan, 1e-9] inner { text: "a" 'b\\n' raw: "\\xff\\000" }
  named { key: "y" value { at: 1 } } named: { key: "x", value: { flags { key: -3 value: true } } };
  all [ { at: -1 }, < size: LARGE > ] f: 0.1
};
message M {
  option (In.marked) = true;
  option deprecated = true;
  int32 a = 1 [(k.rules) = { at: 7 }, (k.sizes) = LARGE, (sizes) = NONE, (.k.least) = -0x10, deprecated = true];
  string b = 2 [(k.rules) = { at: 1 }, (k.rules) = {}];
  enum Inner { ZERO = 0 [(label) = "zero"]; }
}
service S {
  option deprecated = true;
  rpc A(M) returns (stream .k.Rule) { option idempotency_level = IDEMPOTENT; }
  rpc B(stream k.uses.M) returns (M) {}
}
"""
PROTO2 = """// without a syntax
package p . q; import 'google/protobuf/timestamp.proto'; import public "google/protobuf/any.proto";
option optimize_for = SPEED; ;
message Outer {
  message First { required int32 a = 1; }
  map<string, First> by_name = 1;
  message Second { optional Outer.First up = 2; extensions 100 to 199, 300;
  extensions 500 to max [verification = UNVERIFIED]; }
  repeated group Result = 3 { required string url = 1; optional group Deep = 2 { optional bool b = 1; } }
  message Third { reserved 2, 15, 9 to 11, 1000 to max; reserved "foo", "bar"; }
  oneof choice { int64 number = 4; First first = 5; group Grp = 6 { optional bytes x = 1; } }
  optional string text = 7 [default = "a\\"\\n\\303\\251\\141?" "\\u00e9 é", json_name = "TEXT"];
  optional bytes raw = 8 [default = "\\377\\n\\"\\\\"];
  optional double d1 = 9 [default = -inf]; optional float f1 = 10 [default = 0.1];
  optional double d2 = 11 [default = 0.12345678901234567];
  optional Color color = 12 [default = BLUE, deprecated = true];
  optional fixed64 big = 13 [default = 0xffffffffffffffff];
  repeated int32 packed_ones = 14 [packed = true]; optional int32 message = 15;
  optional bool optional = 16 [default = true];
  optional google.protobuf.Timestamp at = 17; optional .google.protobuf.Any any = 18;
  optional sint64 low = 19 [default = -0x8000000000000000];
  enum Color { option allow_alias = true; RED = 5; BLUE = -1; AZURE = -1 [deprecated = true];
  reserved -10 to -5, 100 to max; reserved "X"; }
  extend Second { optional string more = 100; repeated group Ext = 101 { optional int32 z = 1; } }
}
extend Outer.Second { optional Outer outer = 150; }
"""
PROTO3 = """
syntax = "proto3"; package a.b;
import "google/protobuf/struct.proto"; import "google/protobuf/wrappers.proto";
message M {
  optional int32 plain = 1; optional string _under = 2; oneof real { bool x = 3; M m = 4; }
  map<int32, Kind> kinds = 5; map<string, google.protobuf.Value> values = 6; google.protobuf.Int32Value w = 7;
  repeated M.Inner inner = 8; message Inner { a.b.M.Inner self = 1; b.Kind kind = 2;
  } Kind bare = 9; optional bool Xplain = 10;
}
enum Kind { NONE = 0; SOME = 1; }
/* a comment ; } */ service Calls { rpc One (M) returns (stream M); }
"""
EDITION = """
edition = "2023"; package e;
option features.field_presence = IMPLICIT; option features.enum_type = OPEN;
message M {
  int32 a = 1 [features.field_presence = LEGACY_REQUIRED]; N n = 2 [features.message_encoding = DELIMITED];
  message N { reserved foo, bar; reserved 10 to max; } oneof q { string z = 4; N other = 5; }
  repeated int32 p = 6 [features.repeated_field_encoding = EXPANDED];
  Shade s = 7 [default = DARK, features.field_presence = EXPLICIT];
  map<string, string> m = 8 [features.utf8_validation = NONE];
  extensions 100 to 200 [declaration = { number: 100, full_name: ".e.ext", type: "int32" }];
}
enum Shade { option features.enum_type = CLOSED; DARK = 3; LIGHT = 1; reserved B; }
extend M { int32 ext = 100; }
"""
WHOLE = {"proto2": PROTO2, "proto3": PROTO3, "edition": EDITION, "options": OPTIONS}


def check_with_protoc(text, references=None, folders=()):
    """Check that protoc sees the same in a text, in its normal text, and in descriptors of both."""
    theirs = compiled(text, references, folders)
    assert theirs is not None, "protoc compiles it"
    schema = parse_protobuf(text, references)
    again = compiled(normal_text(schema), references, folders)
    assert again is not None, normal_text(schema)
    assert main_file(again) == main_file(theirs)
    assert parse_protobuf(normal_text(schema), references) == schema
    assert parse_protobuf(in_base64(theirs.file[-1]), references) == schema
    assert parse_protobuf(serialized(schema), references) == schema
    return schema, theirs


@pytest.mark.parametrize("name", WHOLE)
def test_source_means_what_protoc_says(name):
    schema, theirs = check_with_protoc(WHOLE[name])
    for data in (theirs.SerializeToString(), descriptor_set(schema)):
        found = parse_descriptor_set(data, message_names(schema)[0])
        assert found == schema
    assert normal_text(schema).isascii()


def test_options_of_imported_extensions_are_interpreted():
    references = {"k/options.proto": OPTIONS}
    schema, theirs = check_with_protoc(USES, references)
    text = normal_text(schema)
    for part in (
        "option (.k.In.marked) = true;", "(.k.sizes) = LARGE, (.k.sizes) = NONE", "(.k.least) = -16",
        '[(.k.rules) = { at: 1 }, (.k.rules) = {}]', "scale: -inf, scale: nan",
        "option idempotency_level = IDEMPOTENT;",
    ):  # fmt: skip
        assert part in text
    # Descriptors of references, too.
    coded = {"k/options.proto": in_base64(compiled(OPTIONS).file[-1])}
    assert parse_protobuf(in_base64(theirs.file[-1]), coded) == schema
    assert parse_descriptor_set(theirs.SerializeToString()) == schema


def test_real_files_mean_what_protoc_says():
    paths = [
        *sorted(BUNDLED.glob("google/protobuf/*.proto")),
        *sorted(SITE.glob("google/**/*.proto")),
    ]
    texts = {}
    for path in paths:
        root = BUNDLED if BUNDLED in path.parents else SITE
        texts[str(path.relative_to(root))] = path.read_text()
    assert len(texts) > 50
    references = {name: text for name, text in texts.items() if not name.startswith("google/protobuf/")}
    for name, text in texts.items():
        if name != "google/protobuf/descriptor.proto":  # every schema has that already
            check_with_protoc(text, {one: text for one, text in references.items() if one != name}, [SITE])


def test_the_files_of_this_repository_mean_what_protoc_says():
    from sarit.rpc import generated

    (folder,) = generated.__path__
    references = {}
    for name in ("controller.proto", "sarit.proto"):
        with open(f"{folder}/{name}") as file:
            text = file.read()
        check_with_protoc(text, references)
        references[f"sarit/rpc/generated/{name}"] = text


@settings(max_examples=examples(300))
@given(schemas())
def test_drawn_source_means_what_protoc_says(text):
    check_with_protoc(text)


REFUSED = {
    "": "is empty",
    "message ": "is neither .proto source nor base64",
    "message M { optional": "the end of the text stands where a name was expected",
    "message M {": "the end of the text",
    "message M { int32 a = 1; }": "line 1:13: int32 has no label",
    "message M { optional int32 a = 0; }": "M.a: the number of a field is 1 to 536870911",
    "message M { optional int32 a = 19500; }": "without 19000 to 19999",
    "message M { optional int32 a = 536870912; }": "the number of a field",
    "message M { optional int32 a = 99999999999; }": "99999999999 stands where an integer",
    "message M { optional int32 a = 089; }": "089 stands where an integer",
    "message M { optional int32 a = 1; optional int32 a = 2; }": "M.a: is defined twice",
    "message M { optional int32 a = 1; optional int32 b = 1; }": "M.b: has the number 1, as a has",
    "message M { reserved 2 to 4; optional int32 a = 3; }": "M.a: the number 3 is reserved",
    "message M { reserved 'a'; optional int32 a = 3; }": "M.a: this name is reserved",
    "message M { reserved 2 to 4, 4; }": "overlaps",
    "message M { reserved 5 to 4; }": "is empty, or overlaps",
    "message M { extensions 3 to 9; optional int32 a = 3; }": "the number 3 is reserved for extensions",
    "message M {} message M {}": "M is defined twice",
    "message M {} enum M { A = 0; }": "M is defined twice",
    "enum E { A = 0; } enum F { A = 0; }": "A: is defined twice",
    "enum E { }": "E: an enum has a value or more",
    "enum E { A = 0; B = 0; }": "two values have one number",
    "enum E { A = 2147483648; }": "stands where an integer",
    "enum E { A = 1; reserved 1; }": "E.A: the number 1 is reserved",
    "message M { oneof o { } }": "M.o: a oneof has a field or more",
    "message M { oneof o { optional int32 a = 1; } }": "a field of a oneof has no label",
    "message M { oneof o { map<int32, int32> a = 1; } }": "stands where",
    "message M { map<double, int32> a = 1; }": "the keys of a map",
    "message M { map<M, int32> a = 1; }": "the keys of a map",
    "message M { repeated map<int32, int32> a = 1; }": "stands where a name was expected",
    "message M { optional X a = 1; }": "M.a is of X, which neither it nor its imports define",
    "message M { optional .M.X a = 1; }": "M.a is of .M.X, which",
    # The first part of a name decides in which scope it is searched.
    "package a; message M { message a { } optional a.N n = 1; } message N { }": "M.n is of a.N, which",
    "message M { optional group g = 1 { } }": "begins with a capital letter",
    "message M { optional int32 a = 1 [default = 1.5]; }": "1.5 is no default of such a field",
    "message M { optional int32 a = 1 [default = 2147483648]; }": "no default",
    "message M { optional uint32 a = 1 [default = -1]; }": "no default",
    "message M { optional bool a = 1 [default = 1]; }": "no default",
    "message M { optional string a = 1 [default = x]; }": "where a string was expected",
    "message M { optional E a = 1 [default = C]; } enum E { A = 0; }": "M.a: C is no default",
    "message M { optional M a = 1 [default = C]; }": "have no default",
    "message M { repeated int32 a = 1 [default = 1]; }": "have no default",
    "message M { optional int32 a = 1 [default = 1, default = 1]; }": "the option default is set twice",
    "message M { optional int32 a = 1 [deprecated = true, deprecated = true]; }": "deprecated is set twice",
    "message M { optional int32 a = 1 [deprecated = 5]; }": "line 1:35: deprecated has no value 5",
    "message M { optional int32 a = 1 [ctype = X]; }": "ctype has no value X",
    "message M { optional int32 a = 1 [nothing = 1]; }": "google.protobuf.FieldOptions has no field nothing",
    "message M { optional int32 a = 1 [(nothing) = 1]; }": "no extension of google.protobuf.FieldOptions",
    "message M { optional int32 a = 1 [json_name = '\\0']; }": "a json_name has no NUL",
    "message M { option map_entry = true; }": "map_entry is set by compilers alone",
    "message M { option message_set_wire_format = true; }": "message sets are not supported",
    "option deprecated.x = true;": "the option deprecated is no message",
    "option java_package = { a: 1 };": "java_package has no value",
    "option features = 1;": "features is a message",
    'import "other.proto";': "imports other.proto, which no reference has as its name",
    'import "google/protobuf/any.proto"; import "google/protobuf/any.proto";': "imports a file twice",
    "package a; package b;": "a file has one package",
    "extend M { }": "the extend of M has no fields",
    "message M { extensions 5; } extend M { required int32 a = 5; }": "an extension is not required",
    "message M { extensions 5; } extend M { optional int32 a = 6; }": "",
    "service S { rpc A(X) returns (X); }": "S.A is of X, which",
    "service S { rpc A(E) returns (E); } enum E { A = 0; }": "S.A is of E, which",
    'syntax = "proto4";': "syntax proto4 is not known",
    'edition = "1999";': "edition 1999 is not known",
    'syntax = "proto3"; message M { required int32 a = 1; }': "proto3 has no required fields",
    'syntax = "proto3"; message M { group G = 1 {} }': "proto3 has no groups",
    'syntax = "proto3"; message M { extensions 5; }': "proto3 has no extension ranges",
    'syntax = "proto3"; message M { int32 a = 1 [default = 1]; }': "proto3 has no defaults",
    'syntax = "proto3"; enum E { A = 1; }': "the first value of an enum is 0",
    'syntax = "proto3"; message M { int32 a_b = 1; int32 aB = 2; }': "have one name in JSON, aB",
    'syntax = "proto3"; message M { int32 a = 1 [json_name = "b"]; int32 b = 2; }': "one name in JSON, b",
    'edition = "2023"; message M { optional int32 a = 1; }': "an edition has no label optional",
    'edition = "2023"; message M { reserved "a"; }': "stands where a name was expected",
    "message M { optional int32 a = 1; } }": "line 1:37: } stands where a name was expected",
    "message 1M { }": "line 1:9: a number is malformed",
    'message M { optional string a = 1 [default = "x]; }': "a string has no end",
    'message M { optional string a = 1 [default = "\\q"]; }': "an escape that does not exist",
    'message M { optional string a = 1 [default = "\\xff"]; }': "a string is no UTF-8",
    "/* no end": "a comment has no end",
    "é": "begins no name, number, string or symbol",
    "message M { option (x) = { [type.googleapis.com/M] { } }; }": "written with type_url and value",
}  # fmt: skip
# Here we are stricter than protoc: it takes what no text can show again, or what no registry needs.
STRICTER = (
    "", "message M { option message_set_wire_format = true; }",
    'message M { optional string a = 1 [default = "\\xff"]; }',
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_protoc_refuses_is_refused_in_one_sentence(text):
    with pytest.raises(Invalid) as raised:
        parse_protobuf(text)
    assert REFUSED[text] in str(raised.value)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isascii()
    assert text in STRICTER or compiled(text) is None


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ("message M {}", {f"{n}": "" for n in range(MAX_SCHEMA_REFERENCES + 1)}, "at most 200 references"),
        ('import "a"; message M {}', {"a": 'import "b";', "b": 'import "a";'}, "a, b: these files import each other"),
        ('import "a"; message M {}', {"a": 'import "default";'}, "which no reference can be named"),
        ('import "a"; message M {}', {"a": 'import "c";'}, "the imported a imports c, which no reference"),
        ('import "a"; message M {}', {"a": "message X { "}, "the imported a, line 1:13: the end of the text"),
        ('import "a"; message M {}', {"a": "message M {}"}, "duplicate symbol 'M'"),
        # What an import sees, who imports it sees only where it is public.
        (
            'import "a"; message M { optional X x = 1; }',
            {"a": 'import "b";', "b": "message X {}"},
            "M.x is of X, which neither it nor its imports define",
        ),
        ("message M {}" + " " * MAX_SCHEMA_BYTES, {}, "at most 1,048,576 bytes"),
        ("message M {}", {"a": " " * MAX_SCHEMA_BYTES}, "at most 1,048,576 bytes"),
        ("message M {} // \ud800", {}, "is no UTF-8"),
        ("AAAA", {}, "is base64, but of no FileDescriptorProto"),
        # More messages than a descriptor may have, of which none has a name.
        (base64.b64encode(b"\x22\x00" * 100_002).decode(), {}, "is base64, but of no FileDescriptorProto"),
        ("AAA", {}, "is neither .proto source nor base64"),
        ("message A{" * (MAX_PROTOBUF_LEVELS + 1), {}, "more than 31 messages are within each other"),
        ("package " + "a." * 31 + "a.b;", {}, "at most 512 characters and 31 names"),
        (";" * 400_001, {}, "more than 400,000 names, numbers and symbols"),
        (f"message {'M' * 513} {{}}", {}, "a name has at most 512 characters"),
        (f"message {'M' * 500} {{ message {'N' * 50} {{ }} }}", {}, "a full name has at most 512 characters"),
    ],
)
def test_references_and_sizes_that_do_not_fit_are_refused(text, references, why):
    with pytest.raises(Invalid) as raised:
        parse_protobuf(text, references)
    assert why in str(raised.value)
    assert str(raised.value).isascii()


def test_public_imports_are_seen():
    references = {"a": 'import public "b";', "b": "message X {}"}
    schema, _ = check_with_protoc('import "a"; message M { optional X x = 1; }', references)
    assert len(schema.dependencies) == 2


def test_references_that_no_file_imports_are_left_alone():
    assert parse_protobuf("message M {}", {"a": "nonsense"}) == parse_protobuf("message M {}")


def test_as_many_levels_as_allowed_are_read_and_printed():
    text = "".join(f"message M{n} {{" for n in range(MAX_PROTOBUF_LEVELS)) + "}" * MAX_PROTOBUF_LEVELS
    check_with_protoc(text)


def test_what_has_no_meaning_makes_no_other_schema():
    plain = parse_protobuf('syntax = "proto3"; package a; message M { M.N n = 1; message N {} map<string, N> m = 3; }')
    other = """// A comment.
        syntax = 'pro' "to3"; package a; message M { .a.M.N n = 0x1 [json_name = "n", deprecated = false]; message N {};
        map < string , a.M.N > m = 3 ; }"""
    assert normal_text(parse_protobuf(other.replace(", deprecated = false", ""))) == normal_text(plain)
    assert parse_protobuf(other.replace(", deprecated = false", "")) == plain
    assert parse_protobuf(other) != plain


# -- descriptors that no compiler made ---------------------------------------------------------------


def changed(change, text=PROTO3):
    file = compiled(text).file[-1]
    change(file)
    return in_base64(file)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: setattr(file.message_type[0], "name", "M { } message X"), "is no name"),
        (lambda file: setattr(file.message_type[0].field[0], "name", "a = 1; //"), "is no name"),
        (lambda file: setattr(file.enum_type[0].value[0], "name", ""), "is no name"),
        (lambda file: setattr(file, "package", "a;b"), "is no name"),
        (lambda file: setattr(file, "syntax", "proto9"), "syntax or edition is not known"),
        (lambda file: setattr(file.message_type[0].field[0], "type", 14), "is of no type, which"),
        (lambda file: setattr(file.message_type[0].field[4], "type_name", ".a.b.M.Inner"), "no field is the map"),
        (lambda file: file.message_type[0].nested_type[0].field[0].ClearField("number"), "a key and a value"),
        (lambda file: file.message_type[0].field[0].ClearField("oneof_index"), "proto3_optional is for"),
        (lambda file: setattr(file.message_type[0].field[0], "oneof_index", 9), "a oneof that is not there"),
        (lambda file: file.public_dependency.append(7), "public or weak import that is not there"),
        (lambda file: file.message_type[0].field[0].options.MergeFromString(b"\x9a\x9b\x18\x01a"), "defines the field"),
        (lambda file: file.message_type[0].field[0].options.uninterpreted_option.add(), "set by compilers alone"),
        (lambda file: file.MergeFromString(b"\xf2\x3f\x01a"), "is none that a compiler makes"),
        (lambda file: file.message_type[0].options.SetInParent() or setattr(
            file.message_type[0].options, "map_entry", True), "is within the message that has the map"),
        (lambda file: file.message_type[0].nested_type.reverse(), "none that a compiler makes"),
    ],
)  # fmt: skip
def test_descriptor_that_no_compiler_makes_is_refused(change, why):
    with pytest.raises(Invalid, match=why):
        parse_protobuf(changed(change))


def test_default_of_a_descriptor_is_data():
    text = 'syntax = "proto2"; message M { optional bytes a = 1 [default = "x"]; optional double b = 2 [default = 1]; }'

    def change(file):
        file.message_type[0].field[0].default_value = 'x"]; } message N { optional int32 z = 1 [default = "'
        file.message_type[0].field[1].default_value = "1000E2"

    schema = parse_protobuf(changed(change, text))
    assert message_names(schema) == ["M"]
    assert "default = 100000]" in normal_text(schema)
    with pytest.raises(Invalid, match="is no default"):
        parse_protobuf(changed(lambda file: setattr(file.message_type[0].field[0], "default_value", "\\"), text))


def test_source_places_and_the_name_of_a_file_are_left_out():
    def change(file):
        file.name = "else/where.proto"
        file.source_code_info.location.add().leading_comments = "x"

    assert parse_protobuf(changed(change)) == parse_protobuf(PROTO3)


@pytest.mark.parametrize(
    ("data", "message", "why"),
    [
        (b"\xff", "", "is no FileDescriptorSet"),
        (b"", "", "0 of its 0 files are imported by no other"),
        (b"x" * (MAX_SCHEMA_BYTES + 1), "", "at most 1,048,576 bytes"),
        (b"\x0a\x03\x0a\x01a" * 2, "", "two files of one name"),
        (b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b", "", "2 of its 2 files are imported by no other: name a message"),
        (b"\x0a\x03\x0a\x01a", "M", "0 of its 1 files define M"),
    ],
)
def test_sets_without_one_schema_are_refused(data, message, why):
    with pytest.raises(Invalid, match=why):
        parse_descriptor_set(data, message)


def test_the_schema_of_a_set_is_the_file_of_the_message():
    theirs = compiled(USES, {"k/options.proto": OPTIONS})
    found = parse_descriptor_set(theirs.SerializeToString(), "k.Rule")
    assert found == parse_protobuf(OPTIONS)
    assert parse_descriptor_set(theirs.SerializeToString(), "k.uses.M") == parse_descriptor_set(
        theirs.SerializeToString()
    )
    with pytest.raises(Invalid, match="0 of its 3 files define k.Size"):
        parse_descriptor_set(theirs.SerializeToString(), "k.Size")


# -- hostile input -----------------------------------------------------------------------------------

PARTS = (
    "message", "enum", "M", "N", "E", "{", "}", ";", "=", "1", "2", "0x7", "-", "optional", "repeated", "required",
    "int32", "string", "map", "<", ">", ",", "oneof", "reserved", "to", "max", "extensions", "extend", "option", "(",
    ")", "[", "]", "default", "json_name", '"a"', "'\\n'", ".", "import", "public", "syntax", '"proto3"', "package",
    "service", "rpc", "returns", "stream", "group", "G", "deprecated", "true", ":", "/", "1.5", "inf", "features",
    "//\n", "/*", "*/", "\n", "\\", "é", "edition", '"2023"', "0", "A", "allow_alias",
)  # fmt: skip


def parsed_or_refused(text):
    """Return the schema of a text, or None if it is refused in one sentence."""
    why = ""
    try:
        return parse_protobuf(text)
    except Invalid as error:
        why = str(error)
    assert why.isascii()
    assert len(why) < 800
    return None


@settings(max_examples=examples(2000))
@given(st.lists(st.sampled_from(PARTS), max_size=40), schemas(), st.data())
def test_drawn_tokens_are_a_schema_or_invalid(parts, text, data):
    words = text.split()
    at = data.draw(st.integers(0, len(words)))
    cut = data.draw(st.integers(0, 3))
    mixed = " ".join([*words[:at], *parts[: cut * 2], *words[at + cut :]])
    for one in (" ".join(parts), mixed):
        schema = parsed_or_refused(one)
        if schema:
            assert parse_protobuf(normal_text(schema)) == schema
            assert compiled(one) is not None, one


@settings(max_examples=examples(2000))
@given(st.sampled_from([in_base64(compiled(one).file[-1]) for one in WHOLE.values()]), st.data())
def test_damaged_descriptors_are_a_schema_or_invalid(text, data):
    damaged = bytearray(base64.b64decode(text))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    schema = parsed_or_refused(base64.b64encode(bytes(damaged)).decode())
    if schema:
        assert parse_protobuf(normal_text(schema)) == schema
        # protoc also checks what the declarations of extensions say.
        assert "declaration" in normal_text(schema) or compiled(normal_text(schema)) is not None


HEAD3 = 'syntax = "proto3";'
ALL = 18_999  # numbers of fields up to those that are reserved
SLOW = {
    "messages": HEAD3 + "".join(f"message M{n} {{ int32 a = 1; string b = 2; }}" for n in range(9000)),
    "maps": HEAD3 + "".join(f"message M{n} {{ M0 b = 2; map<string, M1> m = 3; }}" for n in range(4900)),
    "options": HEAD3 + "message M {" + "".join(f"int32 a{n} = {n} [deprecated = true];" for n in range(1, ALL)) + "}",
    "one option": "option (o) = {" + "x{x{x{i:1}}}" * 70_000 + "};",
    "semicolons": ";" * 1_000_000,
    "values": "enum E { option allow_alias = true; " + "".join(f"A{n}=1;" for n in range(49_000)) + "}",
    "scopes": "package " + ".".join(["a"] * 31) + ";" + "".join(f"message N{n} {{" for n in range(31))
    + "".join(f"optional Q a{n} = {n};" for n in range(1, ALL)) + "}" * 31 + " message Q {}",
    "nested": "message M {" * 90_000,
    "aggregates": "option (x) = {" + "a {" * 300_000,
    "comment": "/*" + "*" * 1_000_000,
    "comments": "/**/" * 250_000 + "x",
    "escapes": '"' + "\\" * 1_000_001,
    "string": 'message M { optional string a = 1 [default = "' + "\\001" * 250_000 + '"]; }',
    "ranges": "message M {" + "".join(f"reserved {n};" for n in range(1, 60_000)) + "}",
    "imports": "".join(f'import "a{n}";' for n in range(60_000)),
    "extensions": "message M { extensions 1 to max; } extend M {"
    + "".join(f"optional int32 f{n} = {n};" for n in range(1, ALL)) + "}",
    "methods": "message M { } service S {" + "".join(f"rpc A{n}(M) returns (M);" for n in range(25_000)) + "}",
    "digits": "enum E { A = " + "9" * 1_000_000 + "; }",
    "names": "message M { optional " + "a." * 190_000 + "a b = 1; }",
    "descriptor of messages": base64.b64encode(b"\x22\x00" * 390_000).decode(),
    "descriptor of levels": base64.b64encode(b"\x22\x7f" * 300_000).decode(),
    "descriptor of fields": base64.b64encode(b"\x22\xf8\xac\x2f\x0a\x01M" + b"\x12\x00" * 387_000).decode(),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SLOW)
def test_sources_made_to_take_long_are_parsed_or_refused_soon(name):
    before = time.process_time()
    try:
        schema = parse_protobuf(SLOW[name])
        normal_text(schema)
    except Invalid:
        pass
    assert time.process_time() - before < patient(4)
