"""Values of the schema registry: names, schemas, versions, settings.  Pure.

A *group* holds the versions of a schema; Confluent calls it a subject.  Groups are in a *namespace*, which Confluent
calls a context; the empty one is the default.  A *schema* is a text with its references: it has one *schema id*, from 1
on, in all groups of the installation that hold it.  A *version* is the place of a schema in one group, from 1 on.  An
*encoding* is a version with a codec, numbered from 0 on in its group: Pravega's serializers put that number into
events.

No number is ever used again: what was deleted leaves its number behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from sarit.schemas.definitions import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.schemas.compatibility import Policy

# The format of an opaque schema that is a FileDescriptorSet of Protobuf with imports, of which no text can be made.
PROTOBUF_FORMAT: Final = "Protobuf"
LATEST: Final = -1  # in place of a version: the highest one that is not deleted


@dataclass(frozen=True, slots=True, order=True)
class GroupName:
    """The name of a group in its namespace.  Check it with `names.check_group` before use."""

    namespace: str
    group: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.group}" if self.namespace else self.group


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema: the text says `name`, and means a version of a group of the same namespace."""

    name: str
    group: str
    version: int


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema as a user gives it.

    `text`: for OPAQUE base64 of its bytes.  `type`: the full name of the record or message; empty: that of the text.
    `format_name`: of an OPAQUE schema of Pravega's Custom format; empty for Any and all other kinds."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    type: str = ""
    format_name: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is stored, under its id for ever; `text` is normal.  `type`: that of the text; versions may say
    another one (`Version.type`), of which an opaque or a JSON schema has none.

    `namespace`: of the groups of its references; empty for a schema without any."""

    id: int
    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    type: str = ""
    format_name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a group.

    `schema`: its id.  `type`: the one that the user named, or that of the text.
    `type_version`: Pravega's number of the version among those of its type, from 0 on.
    `deleted`: softly; it is found only by who asks for deleted ones, and by its schema id.
    `properties`: of Pravega's SchemaInfo.  `created_ms`: since 1970."""

    number: int
    schema: int
    kind: Kind
    type: str = ""
    type_version: int = 0
    deleted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class FoundVersion:
    """A version with the schema that it holds."""

    name: GroupName
    version: Version
    schema: Schema


def takes(kind: Kind | None, format_name: str, new: NewSchema | Schema) -> bool:
    """Return whether a group of a kind and a format takes a schema, as far as these are concerned."""
    if kind is None or (kind, format_name) == (new.kind, new.format_name):
        return True
    return kind is Kind.PROTOBUF and (new.kind, new.format_name) == (Kind.OPAQUE, PROTOBUF_FORMAT)


class Mode(Enum):
    """The changes that a group takes.  IMPORT: schemas with ids and versions of another registry, and only while the
    group has none of its own."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a group, or of all groups without their own.  None: not set here, so that of the level above
    holds: group, namespace, installation; at last BACKWARD and READWRITE."""

    policy: Policy | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    `kind`: the one kind of its schemas; None: any (Confluent's subjects, Pravega's Any).  `many_types`: each type of a
    record has a history of its own (Pravega's allowMultipleTypes).  `format_name`: as in `NewSchema`.
    `codecs`: Pravega's, by name, with their properties.
    `deleted`: softly, by `delete_group` or because all its versions are; a group that `create_group` made stays when
    its versions are deleted one by one."""

    name: GroupName
    settings: Settings = Settings()
    kind: Kind | None = None
    format_name: str = ""
    many_types: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    codecs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deleted: bool = False
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration: schema id and version; `new`: the version was not there before."""

    id: int
    version: int
    new: bool


@dataclass(frozen=True, slots=True)
class Encoding:
    """An encoding of a group: the version and the codec that its number means."""

    number: int
    version: int
    codec: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A version that holds a schema."""

    name: GroupName
    version: int
    deleted: bool
