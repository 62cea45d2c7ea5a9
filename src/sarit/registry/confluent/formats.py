"""The texts in which Confluent's API shows a schema: the stored one, or another form of it that a request asks for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sarit.core.texts import cut_text
from sarit.registry.confluent.errors import BAD_SCHEMA, Refused
from sarit.schemas.avro_forms import whole_text
from sarit.schemas.definitions import Kind, parse_definition
from sarit.schemas.protobuf_forms import serialized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.registry.registry import Registry
    from sarit.registry.values import Schema


async def text_of(registry: Registry, schema: Schema, name: str) -> str:
    """Return the text of a schema in a format.

    `name`: empty or `default` for the stored text; `resolved` for the Avro schema that needs no references;
    `serialized` for base64 of the descriptor of the Protobuf file.  Raises Refused, NotThere (a reference)."""
    form = form_of(schema.kind, name)
    if form is None:
        return schema.text
    texts = await registry.texts(schema)
    size = len(schema.text) + sum(map(len, texts.values()))
    return await registry.compute(partial(form, schema.text, texts), size)


def form_of(kind: Kind, name: str) -> Callable[[str, Mapping[str, str]], str] | None:
    """Return what makes the text of a format from the stored one and those of its references; None: it is the stored
    one.  Raises Refused: there is no such format for schemas of this kind."""
    name = name.strip().lower()
    if name in ("", "default"):
        return None
    form = _FORMS.get((kind, name))
    if form is None:
        shown = cut_text(ascii(name), 60)
        raise Refused(BAD_SCHEMA, f"The format {shown} is not known for a schema of the type {kind.value}")
    return form


def _resolved(text: str, references: Mapping[str, str]) -> str:
    return whole_text(parse_definition(Kind.AVRO, text, references).schema)


def _serialized(text: str, references: Mapping[str, str]) -> str:
    return serialized(parse_definition(Kind.PROTOBUF, text, references).schema)


_FORMS: Final = {(Kind.AVRO, "resolved"): _resolved, (Kind.PROTOBUF, "serialized"): _serialized}
