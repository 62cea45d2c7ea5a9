"""The table of Pravega's API: every call, once.  Pure.

Each call on a group is there a second time under `/v1/namespace/{namespace}`, as the same call with `?namespace=`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sarit.registry.web import Call

_NAMESPACE: Final = ("namespace",)
_TYPE: Final = ("type", *_NAMESPACE)
_GROUPS: Final = "/groups"
_GROUP: Final = f"{_GROUPS}/{{group}}"
_SCHEMAS: Final = f"{_GROUP}/schemas"
_VERSIONS: Final = f"{_SCHEMAS}/versions"
_ID: Final = f"{_SCHEMAS}/schema/{{id}}"
_VERSION: Final = f"{_SCHEMAS}/format/{{format}}/type/{{type}}/versions/{{version}}"
_ENCODINGS: Final = f"{_GROUP}/encodings"
_CODECS: Final = f"{_GROUP}/codecTypes"

_OF_GROUPS: Final = (
    Call("GET", _GROUPS, "list_groups", ("continuationToken", "limit", *_NAMESPACE)),
    Call("POST", _GROUPS, "create_group", _NAMESPACE, body=True, changes=True),
    Call("GET", _GROUP, "show_group", _NAMESPACE),
    Call("DELETE", _GROUP, "delete_group", _NAMESPACE, changes=True),
    Call("GET", f"{_GROUP}/history", "show_history", _NAMESPACE),
    Call("PUT", f"{_GROUP}/compatibility", "set_policy", _NAMESPACE, body=True, changes=True),
    Call("GET", _SCHEMAS, "list_latest", _TYPE),
    Call("POST", _SCHEMAS, "register", _NAMESPACE, body=True, changes=True),
    Call("GET", _VERSIONS, "list_versions", _TYPE),
    Call("POST", f"{_VERSIONS}/find", "find_schema", _NAMESPACE, body=True),
    Call("POST", f"{_VERSIONS}/validate", "check", _NAMESPACE, body=True),
    Call("POST", f"{_VERSIONS}/canRead", "can_read", _NAMESPACE, body=True),
    Call("GET", _ID, "show_schema", _NAMESPACE),
    Call("DELETE", _ID, "delete_schema", _NAMESPACE, changes=True),
    Call("GET", _VERSION, "show_version", _NAMESPACE),
    Call("DELETE", _VERSION, "delete_version", _NAMESPACE, changes=True),
    Call("PUT", _ENCODINGS, "encode", _NAMESPACE, body=True),
    Call("GET", f"{_ENCODINGS}/{{encoding}}", "show_encoding", _NAMESPACE),
    Call("GET", _CODECS, "list_codecs", _NAMESPACE),
    Call("POST", _CODECS, "add_codec", _NAMESPACE, body=True, changes=True),
)

CALLS: Final = (
    Call("GET", "/ping", "ping"),
    *(replace(call, path=f"/v1{call.path}") for call in _OF_GROUPS),
    *(replace(call, path=f"/v1/namespace/{{namespace}}{call.path}") for call in _OF_GROUPS),
    Call("POST", "/v1/schemas/addedTo", "list_groups_of_schema", _NAMESPACE, body=True),
)
