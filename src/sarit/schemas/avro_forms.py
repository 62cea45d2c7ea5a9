"""The texts of an Avro schema: normalized, whole, and canonical with its fingerprint.

`normal_text` is what a registry keeps: two texts that mean the same, spaces, order of attributes and namespaces apart,
have the same.  The canonical form (the specification's Parsing Canonical Form) leaves out defaults, aliases and logical
types, too, so that it tells whether data are written alike, but not whether two schemas are the same one.

Nothing recurses: one named type may define another in a chain of any length.  Pure.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from sarit.schemas.avro_types import PRIMITIVES
from sarit.schemas.schema_text import plain_json

if TYPE_CHECKING:
    from sarit.schemas.avro_types import AvroField, AvroSchema, AvroType

    # Text, or a type in a namespace that is still to be printed.
    Part = str | tuple[AvroType, str]


def normal_text(schema: AvroSchema) -> str:
    """Return the schema without what has no meaning; types of its references by name."""
    return _printed(schema.root, set(schema.referred), canonical=False)


def whole_text(schema: AvroSchema) -> str:
    """Return the schema as a text that needs no references: each of their types is defined where it is used first."""
    return _printed(schema.root, set(), canonical=False)


def canonical_form(schema: AvroSchema) -> str:
    """Return the Parsing Canonical Form of the whole schema."""
    return _printed(schema.root, set(), canonical=True)


def fingerprint(schema: AvroSchema) -> bytes:
    """Return the SHA-256 of the canonical form, 32 bytes."""
    return hashlib.sha256(canonical_form(schema).encode()).digest()


def _printed(root: AvroType, defined: set[str], *, canonical: bool) -> str:
    """Print a type.  `defined`: names of types to print as names, to which this adds those that it defines."""
    made: list[str] = []
    left: list[Part] = [(root, "")]
    while left:
        one = left.pop()
        if isinstance(one, str):
            made.append(one)
            continue
        kind, namespace = one
        if kind.name in defined:
            made.append(f'"{kind.name}"')
            continue
        if kind.name:
            defined.add(kind.name)
        left.extend(reversed(_parts(kind, namespace, canonical=canonical)))
    return "".join(made)


def _parts(kind: AvroType, namespace: str, *, canonical: bool) -> list[Part]:
    """Return the text of a type in a namespace, with its children to be printed."""
    properties = {} if canonical else kind.properties
    if kind.kind in PRIMITIVES and not properties:
        return [f'"{kind.kind}"']
    if kind.kind == "union":
        return ["[", *_separated([[(child, namespace)] for child in kind.children]), "]"]
    attributes: list[list[Part]] = []
    inside = kind.name.rpartition(".")[0] if kind.name else namespace
    if kind.name:
        attributes.append([f'"name":"{kind.name}"'])
        if namespace and not inside and not canonical:
            attributes.append(['"namespace":""'])
    attributes.append([f'"type":"{kind.kind}"'])
    if kind.aliases and not canonical:
        attributes.append([f'"aliases":{plain_json(list(kind.aliases))}'])
    if kind.kind == "record":
        fields = [_field(one, child, inside, canonical) for one, child in zip(kind.fields, kind.children, strict=True)]
        attributes.append(['"fields":[', *_separated(fields), "]"])
    elif kind.kind == "enum":
        attributes.append([f'"symbols":{plain_json(list(kind.symbols))}'])
    elif kind.kind == "fixed":
        attributes.append([f'"size":{kind.size}'])
    elif kind.kind in ("array", "map"):
        attributes.append([f'"{"items" if kind.kind == "array" else "values"}":', (kind.children[0], namespace)])
    attributes += [[f"{json.dumps(name)}:{plain_json(value)}"] for name, value in sorted(properties.items())]
    return ["{", *_separated(attributes), "}"]


def _field(field: AvroField, child: AvroType, namespace: str, canonical: bool) -> list[Part]:
    parts: list[Part] = [f'{{"name":"{field.name}","type":', (child, namespace)]
    if not canonical:
        if field.aliases:
            parts.append(f',"aliases":{plain_json(field.aliases)}')
        parts += [f",{json.dumps(name)}:{plain_json(value)}" for name, value in sorted(field.properties.items())]
    return [*parts, "}"]


def _separated(items: list[list[Part]]) -> list[Part]:
    return [part for index, item in enumerate(items) for part in ([",", *item] if index else item)]
