"""The table of Confluent's API: every call, once.  Pure.

Each call but those of `ROOT` is there a second time under `/contexts/{context}`, where names mean those of a context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sarit.registry.web import Call

_PAGE: Final = ("offset", "limit")
_SUBJECT: Final = "/subjects/{subject}"
_VERSIONS: Final = f"{_SUBJECT}/versions"
_VERSION: Final = f"{_VERSIONS}/{{version}}"
_ID: Final = "/schemas/ids/{id}"
_GUID: Final = "/schemas/guids/{guid}"
_CHECK: Final = "/compatibility/subjects/{subject}/versions"

ROOT: Final = (
    Call("GET", "/", "root"),
    Call("GET", "/contexts", "list_contexts", ("contextPrefix", *_PAGE)),
)
_IN_CONTEXTS: Final = (
    Call("GET", "/subjects", "list_subjects", ("subjectPrefix", "deleted", "deletedOnly", *_PAGE)),
    Call("POST", _SUBJECT, "find_schema", ("normalize", "deleted", "format"), body=True),
    Call("DELETE", _SUBJECT, "delete_subject", ("permanent",), changes=True),
    Call("GET", f"{_SUBJECT}/metadata", "find_metadata", ("key", "value", "deleted", "format")),
    Call("GET", _VERSIONS, "list_versions", ("deleted", "deletedOnly", "deletedAsNegative", *_PAGE)),
    Call("POST", _VERSIONS, "register", ("normalize", "format"), body=True, changes=True),
    Call("GET", _VERSION, "show_version", ("deleted", "format")),
    Call("DELETE", _VERSION, "delete_version", ("permanent",), changes=True),
    Call("GET", f"{_VERSION}/schema", "show_version_text", ("deleted", "format")),
    Call("GET", f"{_VERSION}/referencedby", "list_referrers", ("deleted", *_PAGE)),
    Call("GET", "/schemas", "list_schemas", ("subjectPrefix", "deleted", "latestOnly", *_PAGE)),
    Call("GET", "/schemas/types", "list_types"),
    Call("GET", _ID, "show_schema", ("subject", "format")),
    Call("GET", f"{_ID}/schema", "show_schema_text", ("subject", "format")),
    Call("GET", f"{_ID}/subjects", "list_subjects_of_schema", ("subject", "deleted", *_PAGE)),
    Call("GET", f"{_ID}/versions", "list_versions_of_schema", ("subject", "deleted", *_PAGE)),
    Call("GET", _GUID, "show_schema_by_guid", ("format",)),
    Call("GET", f"{_GUID}/ids", "list_ids_of_guid"),
    Call("POST", _CHECK, "check", ("normalize", "verbose"), body=True),
    Call("POST", f"{_CHECK}/{{version}}", "check_version", ("normalize", "verbose"), body=True),
    Call("GET", "/config", "show_level", ("defaultToGlobal",)),
    Call("PUT", "/config", "set_level", body=True, changes=True),
    Call("DELETE", "/config", "remove_level", changes=True),
    Call("GET", "/config/{subject}", "show_subject_level", ("defaultToGlobal",)),
    Call("PUT", "/config/{subject}", "set_subject_level", body=True, changes=True),
    Call("DELETE", "/config/{subject}", "remove_subject_level", changes=True),
    Call("GET", "/mode", "show_mode", ("defaultToGlobal",)),
    Call("PUT", "/mode", "set_mode", ("force",), body=True, changes=True),
    Call("DELETE", "/mode", "remove_mode", changes=True),
    Call("GET", "/mode/{subject}", "show_subject_mode", ("defaultToGlobal",)),
    Call("PUT", "/mode/{subject}", "set_subject_mode", ("force",), body=True, changes=True),
    Call("DELETE", "/mode/{subject}", "remove_subject_mode", changes=True),
)

CALLS: Final = (
    *ROOT,
    *_IN_CONTEXTS,
    *(replace(call, path=f"/contexts/{{context}}{call.path}") for call in _IN_CONTEXTS),
)
