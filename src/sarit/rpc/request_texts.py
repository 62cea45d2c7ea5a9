"""Bounds the texts and lists of a request, for all calls.

Handlers look up, repeat, log and store what a request names, so every text is bounded before the request is handled.  A
refusal says which field is too long, without its content.  Names above the protocol's limit of 255 characters, but
below this bound, are refused by each call in its own way.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sarit.rpc.limits import MAX_REQUEST_ITEMS, MAX_REQUEST_TEXT_BYTES, MAX_REQUEST_TEXTS


def request_excess(request: Any, size: int) -> str | None:
    """Return a text about what is too long in a request of `size` bytes; None: nothing is."""
    # Most requests are shorter than the bound of one text.
    return None if size <= MAX_REQUEST_TEXT_BYTES else _excess(request)


def _excess(message: Any) -> str | None:
    for field, value in message.ListFields():
        if field.is_repeated:
            most = MAX_REQUEST_TEXTS if field.type == FieldDescriptor.TYPE_STRING else MAX_REQUEST_ITEMS
            if len(value) > most:
                return f"{field.name} has {len(value)} entries; the most is {most}"
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                # A text has at least as many bytes as characters, so a long one need not be encoded.
                if len(text) > MAX_REQUEST_TEXT_BYTES or len(text.encode()) > MAX_REQUEST_TEXT_BYTES:
                    return f"{field.name} is longer than {MAX_REQUEST_TEXT_BYTES} bytes"
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else (value,):
                if (found := _excess(part)) is not None:
                    return found
    return None
