"""Protobuf schemas drawn at random, as .proto source: small ones whose names and shapes often meet."""

from hypothesis import strategies as st

SCALARS = ("int32", "sint64", "uint64", "fixed32", "double", "float", "bool", "string", "bytes")
KEYS = ("int32", "string", "bool")
SYNTAXES = ("proto2", "proto3", "editions")
DEFAULTS = {
    "int32": ("-7", "0x1f", "017"), "sint64": ("-9223372036854775808",), "uint64": ("18446744073709551615",),
    "fixed32": ("0",), "double": ("1e300", "0.12345678901234567", "-inf", "3"),
    "float": ("0.1", "nan", "1e30", "16777217"),
    "bool": ("true",), "string": ("'a\\n\\\"é'", '"x" "\\101"'), "bytes": ("'\\xff\\0'", '"a?\\?"'),
}  # fmt: skip
HEADS = {"proto2": 'syntax = "proto2";', "proto3": 'syntax = "proto3";', "editions": 'edition = "2023";'}


@st.composite
def schemas(draw, syntax=None):
    """Draw the source of a file."""
    syntax = syntax or draw(st.sampled_from(SYNTAXES))
    drawing = _Drawing(draw, syntax)
    package = draw(st.sampled_from(("", "package p;", "package p.q;")))
    lines = [HEADS[syntax], package]
    names = draw(st.lists(st.sampled_from(("A", "B", "C")), min_size=1, unique=True))
    shape = [(name, draw(st.lists(st.sampled_from(("K", "N")), unique=True))) for name in names]
    drawing.types = [*names, *(f"{name}.{inner}" for name, inners in shape for inner in inners)]
    lines += [drawing.enum("E", "E")]
    lines += [drawing.message(name, inners) for name, inners in shape]
    return "\n".join(lines)


class _Drawing:
    def __init__(self, draw, syntax):
        self.draw, self.syntax = draw, syntax
        self.types = []

    def enum(self, name, prefix):
        numbers = self.draw(st.lists(st.integers(1, 4), unique=True, max_size=3))
        first = self.draw(st.sampled_from((0, 5))) if self.syntax == "proto2" else 0
        values = [f"{prefix}{index} = {number};" for index, number in enumerate([first, *numbers])]
        if self.draw(st.booleans()):
            values.append("reserved 7, 9 to max;")
        return f"enum {name} {{ {' '.join(values)} }}"

    def message(self, name, inners):
        draw = self.draw
        numbers = draw(st.lists(st.integers(1, 9), unique=True, max_size=5))
        parts = [self.message(inner, []) for inner in inners]
        place = 0
        for index, number in enumerate(numbers):
            one = self.field(f"f_{index}", number)
            place = draw(st.integers(place, len(parts)))  # before or between messages: order is kept
            parts.insert(place, one)
            place += 1
        if draw(st.booleans()):
            parts.append("reserved 20 to 25, 30; reserved x;" if self.syntax == "editions" else 'reserved "x", "y";')
        if draw(st.booleans()):
            parts.append("option deprecated = true;")
        return f"message {name} {{\n{chr(10).join(parts)}\n}}"

    def field(self, name, number):
        draw = self.draw
        kinds = ["scalar", "scalar", "named", "map", "oneof"]
        kinds += ["group"] if self.syntax == "proto2" else []
        kind = draw(st.sampled_from(kinds))
        if kind == "map":
            value = draw(st.sampled_from((*SCALARS, *self.types)))
            return f"map<{draw(st.sampled_from(KEYS))}, {value}> {name} = {number};"
        if kind == "oneof":
            inner = draw(st.sampled_from((*SCALARS, *self.types, "E" if self.syntax != "proto3" else "bool")))
            return f"oneof o{number} {{ {inner} {name} = {number}; string z{number} = {number + 100}; }}"
        label = draw(st.sampled_from(self.labels()))
        if kind == "group":
            return f"{label} group G{number} = {number} {{ optional int32 a = 1; }}"
        scalar = draw(st.sampled_from(SCALARS if kind == "scalar" else (*self.types, "E")))
        options = []
        if self.syntax != "proto3" and label != "repeated" and scalar in DEFAULTS and draw(st.booleans()):
            options.append(f"default = {draw(st.sampled_from(DEFAULTS[scalar]))}")
        if draw(st.integers(0, 3)) == 0:
            options.append(draw(st.sampled_from(("deprecated = true", f'json_name = "j{number}"'))))
        given = f" [{', '.join(options)}]" if options else ""
        return f"{label} {scalar} {name} = {number}{given};"

    def labels(self):
        return {
            "proto2": ("optional", "required", "repeated"),
            "proto3": ("", "optional", "repeated"),
            "editions": ("", "repeated"),
        }[self.syntax]
