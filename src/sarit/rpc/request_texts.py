"""Bounds on the texts and lists of a request, whatever call it is for.  Pure.

Handlers look up, repeat, log and store what a request names.  So every text is bounded before anything is done with the
request.  A refusal says which field is too long, and repeats nothing of it.  Names over the protocol's limit of 255
characters, but below this bound, are answered by each call in its own way.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sarit.rpc.limits import MAX_REQUEST_ITEMS, MAX_REQUEST_TEXT_BYTES, MAX_REQUEST_TEXTS


def request_excess(request: Any, size: int) -> str | None:
    """What is too long in a request of `size` bytes, for the caller; None: nothing is."""
    # Most requests are shorter than one text may be.
    return None if size <= MAX_REQUEST_TEXT_BYTES else _excess(request)


def _excess(message: Any) -> str | None:
    for field, value in message.ListFields():
        if field.is_repeated:
            most = MAX_REQUEST_TEXTS if field.type == FieldDescriptor.TYPE_STRING else MAX_REQUEST_ITEMS
            if len(value) > most:
                return f"{field.name} has {len(value)} entries; the most is {most}"
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                # At least as many bytes as characters: a long one is not encoded.
                if len(text) > MAX_REQUEST_TEXT_BYTES or len(text.encode()) > MAX_REQUEST_TEXT_BYTES:
                    return f"{field.name} is longer than {MAX_REQUEST_TEXT_BYTES} bytes"
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else (value,):
                if (found := _excess(part)) is not None:
                    return found
    return None
