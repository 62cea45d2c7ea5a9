"""JSON Schemas drawn at random: small ones of all keywords that are compared, whose shapes often meet."""

import copy

from hypothesis import strategies as st

NAMES = ("a", "b")
TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
PATTERNS = ("a", "^b$")
COUNTS = (0, 1, 2, 3)
NUMBERS = (-1, 0, 1, 1.5, 2, 3)
CONSTANTS = (None, True, 0, 1, 1.0, 1.5, "a", "bb", [], [1], {}, {"a": 1})
DRAFTS = {
    None: None,
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
REFERENCES = ("#", "#/$defs/x", "#/$defs/y", "other", "other#/$defs/z")
# Keyword -> what it is drawn from: constants, or what its schemas stand in.
_CONSTANT = {
    "title": ("t", "u"), "type": TYPES, "required": (["a"], ["b"], ["a", "b"], []), "const": CONSTANTS,
    "enum": ([1, 2], ["a"], ["a", "bb", 1], [None, True], [True, False], [1.0, 1.5], [{"a": 1}, 0]),
    "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
    "multipleOf": (1, 2), "minLength": COUNTS, "maxLength": COUNTS, "pattern": PATTERNS, "minItems": COUNTS,
    "maxItems": COUNTS, "uniqueItems": (True, False), "minProperties": COUNTS, "maxProperties": COUNTS,
    "dependentRequired": ({"a": ["b"]},), "minContains": (0, 2),
}  # fmt: skip
_ONE = ("additionalProperties", "items", "not", "propertyNames", "additionalItems", "contains", "if", "then", "else",
        "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = {"properties": NAMES, "patternProperties": PATTERNS, "dependentSchemas": NAMES}
_USUAL = ("type", "properties", "additionalProperties", "required", "items", "anyOf", "oneOf", "$ref", "enum", "const")
KEYWORDS = (*_USUAL, *_USUAL, *_USUAL, *_CONSTANT, *_ONE, *_SEVERAL, *_NAMED)


def draw_schema(draw, levels=3):
    """Draw a schema, which may refer to the definitions of its text and to a text of the name `other`."""
    if not levels or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from((True, False, {}, {"type": "integer"}, {"type": "string"})))
    made = {}
    for keyword in draw(st.lists(st.sampled_from(KEYWORDS), max_size=4, unique=True)):
        made[keyword] = _value(draw, keyword, levels)
    return made


def _value(draw, keyword, levels):
    if keyword == "$ref":
        return draw(st.sampled_from(REFERENCES))
    if keyword in _CONSTANT:
        one = draw(st.sampled_from(_CONSTANT[keyword]))
        if keyword == "type" and draw(st.integers(0, 3)) == 0:
            return draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True))
        return one
    if keyword in _ONE:
        return draw_schema(draw, levels - 1)
    if keyword in _SEVERAL:
        return [draw_schema(draw, levels - 1) for _ in range(draw(st.integers(1, 3)))]
    names = draw(st.lists(st.sampled_from(_NAMED[keyword]), min_size=1, unique=True))
    return {name: draw_schema(draw, levels - 1) for name in names}


def _text(draw, draft):
    """Draw the schema of a text, with its definitions."""
    made = draw_schema(draw)
    made = made if isinstance(made, dict) else {}
    made["$defs"] = {name: draw_schema(draw, 2) for name in ("x", "y", "z")}
    return _of_draft(made, draft)


def _of_draft(text, draft):
    """Return a text that names its draft; before 2020, the first items have their schemas in `items`."""
    if draft in (7, 2019):
        for one in _places(text):
            if "prefixItems" in one:
                one["items"] = one.pop("prefixItems")
    return text | ({"$schema": DRAFTS[draft]} if draft else {})


@st.composite
def pairs(draw):
    """Draw two pairs of a schema and one to refer to: apart, or the second as the first with some places changed."""
    draft = draw(st.sampled_from((None, None, 7, 2019, 2020)))
    first = [_text(draw, draft), _text(draw, draft)]
    if draw(st.integers(0, 4)) == 0:
        draft = draw(st.sampled_from((draft, None, 7, 2019, 2020)))
        return first, [_text(draw, draft), _text(draw, draft)]
    second = copy.deepcopy(first)
    for _ in range(draw(st.integers(1, 3))):
        places = [one for text in second for one in _places(text)]
        _change(draw, draw(st.sampled_from(places)))
    return (first, second) if draw(st.booleans()) else (second, first)


def _places(value):
    """Yield the schemas of a text that are objects."""
    if isinstance(value, list):
        for one in value:
            yield from _places(one)
    elif isinstance(value, dict):
        yield value
        for name, one in value.items():
            if name in _ONE or name in _SEVERAL:  # `items` may be one schema or several
                yield from _places(one)
            elif name in _NAMED or name == "$defs":
                yield from _places(list(one.values()))


def _change(draw, schema):
    """Change a keyword of a schema, take one away, or add one."""
    known = [name for name in schema if name not in ("$defs", "$schema") and not isinstance(schema.get("items"), list)]
    if known and draw(st.booleans()):
        name = draw(st.sampled_from(known))
        if draw(st.booleans()):
            del schema[name]
        else:
            schema[name] = _value(draw, name, 1)
    else:
        name = draw(st.sampled_from(KEYWORDS))
        if name != "prefixItems" or "items" not in schema:
            schema[name] = _value(draw, name, 1)
