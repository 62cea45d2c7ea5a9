"""The table of the schema registry and the keys of its rows.  Pure.

    _system/_tables/registry
        n                                   Counters; every change expects its version
        l                                   says that a link alone changes the registry; no value
        s/<schema id>/<part>                a schema: its head and the first part of its text, then further parts
        p/<fingerprint>                     the id of the schema with this fingerprint, 32 bytes
        d/<schema id>                       the fingerprint of a schema that was deleted permanently
        h/<schema id>/<group> 00 <version>  a version that holds the schema; no value
        g/<group>                           Head of a group
        t/<group>                           Remains of a group that was deleted permanently
        v/<group> 00 <version>              Version
        y/<group> 00 <type>                 TypeNumbers: of the versions of one type
        r/<group> 00 <version>/<schema id>  a schema that refers to the version; no value
        e/<group> 00 n<encoding>            an encoding: its version and codec
        e/<group> 00 v<version>/<codec>     the number of that encoding
        c                                   Settings of the installation, and so of the default namespace
        c/<namespace>                       Settings of another namespace
        c/<namespace> 00 <group>            Settings of a group

<group> is <namespace> 00 <name of the group>.  Schema ids have 16 hexadecimal digits, versions, encodings and parts 8.
No name contains a control character (names.py), so that a name ends at its 00.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sarit.core.errors import Corrupt
from sarit.core.names import SYSTEM_SCOPE
from sarit.registry.values import GroupName

if TYPE_CHECKING:
    from sarit.registry.values import Reference

REGISTRY_TABLE: Final = f"{SYSTEM_SCOPE}/_tables/registry"
COUNTERS: Final = b"n"
MIRROR: Final = b"l"
GROUPS: Final = b"g/"
_INSTALLATION: Final = b"c"


def of_group(name: GroupName) -> bytes:
    """Return how keys name a group."""
    return f"{name.namespace}\0{name.group}".encode()


def schema_key(id: int, part: int) -> bytes:
    """Return the key of a part of a schema."""
    return f"s/{id:016x}/{part:08x}".encode()


def fingerprint_key(fingerprint: bytes) -> bytes:
    """Return the key of the id of a schema."""
    return b"p/" + fingerprint


def deleted_schema_key(id: int) -> bytes:
    """Return the key of the fingerprint of a schema that was deleted permanently."""
    return f"d/{id:016x}".encode()


def holders_of(id: int) -> bytes:
    """Return the prefix of the versions that hold a schema."""
    return f"h/{id:016x}/".encode()


def holders_in(id: int, name: GroupName) -> bytes:
    """Return the prefix of the versions of a group that hold a schema."""
    return holders_of(id) + of_group(name) + b"\0"


def holder_key(id: int, name: GroupName, version: int) -> bytes:
    """Return the key of a version that holds a schema."""
    return holders_in(id, name) + f"{version:08x}".encode()


def parse_holder(key: bytes) -> tuple[GroupName, int]:
    """Return the group and the version of the key of a holder.  Raises Corrupt."""
    try:
        namespace, group, version = key.split(b"/", 2)[2].decode().split("\0")
        return GroupName(namespace, group), int(version, 16)
    except (ValueError, IndexError):
        raise _wrong(key) from None


def groups_of(namespace: str) -> bytes:
    """Return the prefix of the heads of a namespace's groups."""
    return GROUPS + namespace.encode() + b"\0"


def head_key(name: GroupName) -> bytes:
    """Return the key of the head of a group."""
    return GROUPS + of_group(name)


def parse_head(key: bytes) -> GroupName:
    """Return the name of the group of a head's key.  Raises Corrupt."""
    try:
        namespace, group = key[len(GROUPS) :].decode().split("\0")
    except ValueError:
        raise _wrong(key) from None
    return GroupName(namespace, group)


def remains_key(name: GroupName) -> bytes:
    """Return the key of what remains of a group that was deleted permanently."""
    return b"t/" + of_group(name)


def versions_of(name: GroupName) -> bytes:
    """Return the prefix of the versions of a group."""
    return b"v/" + of_group(name) + b"\0"


def version_key(name: GroupName, number: int) -> bytes:
    """Return the key of a version."""
    return versions_of(name) + f"{number:08x}".encode()


def parse_number(key: bytes) -> int:
    """Return the number of 8 digits that a key ends with.  Raises Corrupt."""
    try:
        return int(key[-8:], 16)
    except ValueError:
        raise _wrong(key) from None


def type_key(name: GroupName, type: str) -> bytes:
    """Return the key of the numbers of a type's versions."""
    return b"y/" + of_group(name) + b"\0" + type.encode()


def referrers_of_group(name: GroupName) -> bytes:
    """Return the prefix of the schemas that refer to any version of a group."""
    return b"r/" + of_group(name) + b"\0"


def referrers_of(name: GroupName, version: int) -> bytes:
    """Return the prefix of the schemas that refer to a version."""
    return referrers_of_group(name) + f"{version:08x}/".encode()


def referrer_key(namespace: str, reference: Reference, id: int) -> bytes:
    """Return the key that says that a schema refers to a version."""
    return referrers_of(GroupName(namespace, reference.group), reference.version) + f"{id:016x}".encode()


def parse_referrer(key: bytes) -> int:
    """Return the schema id of the key of a referrer.  Raises Corrupt."""
    try:
        return int(key[-16:], 16)
    except ValueError:
        raise _wrong(key) from None


def encodings_of(name: GroupName) -> bytes:
    """Return the prefix of the encodings of a group, by number."""
    return b"e/" + of_group(name) + b"\0n"


def encoding_key(name: GroupName, number: int) -> bytes:
    """Return the key of an encoding."""
    return encodings_of(name) + f"{number:08x}".encode()


def encodings_by_version(name: GroupName, version: int) -> bytes:
    """Return the prefix of the numbers of a version's encodings."""
    return b"e/" + of_group(name) + b"\0v" + f"{version:08x}/".encode()


def encoding_number_key(name: GroupName, version: int, codec: str) -> bytes:
    """Return the key of the number of an encoding."""
    return encodings_by_version(name, version) + codec.encode()


def settings_keys(name: GroupName) -> list[bytes]:
    """Return the keys of the settings that apply to a name, from its own up to the installation's.

    A GroupName with an empty group stands for its namespace; the default one has the settings of the installation."""
    own = [b"c/" + of_group(name)] if name.group else []
    return [*own, *([b"c/" + name.namespace.encode()] if name.namespace else []), _INSTALLATION]


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all that begin with `prefix`, which never ends with ff."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def shown(key: bytes) -> str:
    """Return a key as errors name it, in ASCII."""
    return key[:100].decode("ascii", "backslashreplace").replace("\0", "\\0")


def _wrong(key: bytes) -> Corrupt:
    return Corrupt(f"the registry's table holds the key {shown(key)}, which no registry writes")
