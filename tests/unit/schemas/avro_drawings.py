"""Avro schemas drawn at random, as JSON: small ones whose names and shapes often meet."""

import json

from hypothesis import strategies as st

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES = ("k.A", "k.B", "n.A", "n.B", "m.A")  # all in a namespace: the package avro takes "" for none given
FIELDS = ("x", "y", "z")
SYMBOLS = ("P", "Q", "R")
DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
}


@st.composite
def schemas(draw, logical=False):
    """Draw a schema; named types use those defined before, and themselves."""
    return _type(draw, 3, [], logical, False)


def _type(draw, levels, known, logical, in_union):
    kinds = ["primitive"] * 3
    if known:
        kinds += ["use"] * 2
    free = [name for name in NAMES if name not in known]
    if levels:
        kinds += ["array", "map"]
        kinds += [] if in_union else ["union", "union"]
        kinds += ["record", "record", "record"] if free else []
    if free:
        kinds += ["enum", "fixed"]
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "use":
        name = draw(st.sampled_from(known))
        return name
    if kind == "array":
        return {"type": "array", "items": _type(draw, levels - 1, known, logical, False)}
    if kind == "map":
        return {"type": "map", "values": _type(draw, levels - 1, known, logical, False)}
    if kind == "union":
        return _union(draw, levels, known, logical)
    name = draw(st.sampled_from(free))
    known.append(name)
    space, _, short = name.rpartition(".")
    made = {"type": kind, "name": short, "namespace": space}
    if draw(st.booleans()):
        made["aliases"] = draw(st.lists(st.sampled_from(NAMES[2:]), max_size=2, unique=True))
    if kind == "enum":
        made["symbols"] = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        if draw(st.booleans()):
            made["default"] = made["symbols"][0]
    elif kind == "fixed":
        made["size"] = draw(st.sampled_from((4, 5)))
        if logical and draw(st.booleans()):
            made |= {"logicalType": "decimal", "precision": draw(st.integers(3, 4)), "scale": draw(st.integers(0, 1))}
    else:
        names = draw(st.lists(st.sampled_from(FIELDS), max_size=3, unique=True))
        made["fields"] = [_field(draw, one, levels, known, logical) for one in names]
    return made


def _union(draw, levels, known, logical):
    made, seen = [], set()
    for _ in range(draw(st.integers(0, 3))):
        before = list(known)
        one = _type(draw, levels - 1, known, logical, True)
        key = (
            one
            if isinstance(one, str)
            else f"{one['namespace']}.{one['name']}".lstrip(".")
            if "name" in one
            else one["type"]
        )
        if key in seen:
            known[:] = before
        else:
            seen.add(key)
            made.append(one)
    return made


def _field(draw, name, levels, known, logical):
    made = {"name": name, "type": _type(draw, levels - 1, known, logical, False)}
    if isinstance(made["type"], str) and made["type"] in DEFAULTS and draw(st.booleans()):
        made["default"] = DEFAULTS[made["type"]]
    if draw(st.integers(0, 3)) == 0:
        made["aliases"] = [draw(st.sampled_from(FIELDS))]
    return made


@st.composite
def pairs(draw, logical=False):
    """Draw two schemas: apart, or the second as the first with a few places changed."""
    first = draw(schemas(logical))
    if draw(st.booleans()):
        return first, draw(schemas(logical))
    second = json.loads(json.dumps([first]))
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(second))
        if places:
            holder, key = draw(st.sampled_from(places))
            _change(draw, holder, key)
    return first, second[0]


def _places(value):
    """Yield (object or array, key) of each place that another value fits into."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(one, dict | list) and key not in ("symbols", "aliases"):
            yield from _places(one)
        in_union = isinstance(value, list) and len(value) > 1
        is_type = one in PRIMITIVES and key not in ("default", "name") and not in_union
        if is_type or key in ("symbols", "size", "fields", "aliases"):
            yield value, key


def _change(draw, holder, key):
    if key == "size":
        holder[key] = draw(st.sampled_from((4, 5)))
    elif key in ("fields", "symbols", "aliases"):
        taken = draw(st.integers(0, len(holder[key])))
        kept = holder[key][:taken] + holder[key][taken + 1 :]
        # What a field defines may be used after it.
        plain = key != "fields" or all(isinstance(one["type"], str) for one in holder[key][taken : taken + 1])
        if plain and (kept or key != "symbols"):
            holder[key] = kept
            if key == "symbols":
                holder.pop("default", None)
    else:
        holder[key] = draw(st.sampled_from(PRIMITIVES))
        if isinstance(holder, dict):
            holder.pop("default", None)
