"""Payloads as JSON documents for people, by the schema that their header names.

Avro as in `avro_documents.py`; Protobuf as its own library prints JSON, with the fields that are set; JSON as it is;
what a schema of another format describes, in base64.  Pure.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Invalid
from sarit.schemas.avro_documents import avro_document
from sarit.schemas.definitions import Kind, parse_definition
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class DocumentReader:
    """Reads payloads of one schema."""

    def __init__(self, kind: Kind, text: str, references: Mapping[str, str], message: str = "") -> None:
        """`references`: as of `parse_definition`.  `message`: the full name of the Protobuf message, where the payloads
        do not say which it is.  Raises Invalid: the text is no schema of that kind."""
        self.kind = kind
        self._read: Callable[[bytes, Sequence[int]], Any]
        if kind is Kind.AVRO:
            root = parse_definition(kind, text, references).schema.root
            self._read = lambda payload, _indexes: avro_document(root, payload)
        elif kind is Kind.PROTOBUF:
            from sarit.schemas.protobuf_definition import parse_protobuf
            from sarit.schemas.protobuf_documents import ProtobufDocuments

            self._read = ProtobufDocuments(parse_protobuf(text, references), message)
        else:
            self._read = _json if kind is Kind.JSON else _base64

    def __repr__(self) -> str:
        return f"<DocumentReader of {self.kind.value}>"

    def read(self, payload: bytes, indexes: Sequence[int] = (0,)) -> Any:
        """Return the document.  `indexes`: of the Protobuf message.  Raises Invalid: the payload is not of the
        schema."""
        return self._read(payload, indexes)


def _json(payload: bytes, _indexes: Sequence[int]) -> Any:
    try:
        return parse_json(payload, parse_constant=_refuse)
    except ValueError as error:  # also of text that is no UTF-8
        raise Invalid(f"it is no JSON document: {shown(str(error))}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _base64(payload: bytes, _indexes: Sequence[int]) -> str:
    return base64.b64encode(payload).decode()
