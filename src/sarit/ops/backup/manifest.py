"""What is in a backup place, as names and bytes: pure.  docs/formats/backup.md shows the bytes.

    backup/place                  which node the place belongs to
    backup/running                who changes the place now: a backup, or a prune
    backup/manifest-000000000007  one backup: everything it consists of; written last
    index/<digest>-<length>       a part of a copy of an index
    chunks/<chunk>/<digest>-<length>

The digest (BLAKE2b, 20 bytes, in hexadecimal digits) is of the content.  So the name of an object says what it must
hold, a listing says what is there already, and an object never changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt, Invalid
from sarit.ops.backup.limits import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import Buffer

VERSION: Final = 1
PLACE: Final = "backup/place"
RUNNING: Final = "backup/running"
MANIFESTS: Final = "backup"
CHUNKS: Final = "chunks"
INDEX: Final = "index"
_MANIFEST: Final = re.compile(r"backup/manifest-(\d{12})")
_OBJECT: Final = re.compile(rf"([0-9a-f]{{{2 * DIGEST_BYTES}}})-(\d+)")


def digest_of(data: Buffer) -> str:
    """Return the digest of the content of an object.  Blocking: about a millisecond for each MiB."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of a backup: what it stands for, and the digest and the length in bytes of its content."""

    name: str
    digest: str
    length: int

    @property
    def object_name(self) -> str:
        """The object's name in the place.  `name` is the chunk's name, or "" for a part of an index."""
        folder = f"{CHUNKS}/{self.name}" if self.name else INDEX
        return f"{folder}/{self.digest}-{self.length}"


def piece_of(object_name: str) -> Piece | None:
    """Return the inverse of `object_name`; None for a name of another kind."""
    folder, _, last = object_name.rpartition("/")
    found = _OBJECT.fullmatch(last)
    if found is None:
        return None
    digest, length = found[1], int(found[2])
    if folder == INDEX:
        return Piece("", digest, length)
    chunk = folder.removeprefix(f"{CHUNKS}/")
    return Piece(chunk, digest, length) if chunk != folder else None


@dataclass(frozen=True, slots=True)
class ContainerBackup:
    """One container: the frame of its checkpoint, the parts of its index in order, and its chunks."""

    frame: int
    index: tuple[Piece, ...]
    chunks: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup.  `moment_ms`: the wall clock when it was begun.  `node`: the id of the node.

    `copied_bytes`: what this backup added to the place."""

    number: int
    node: str
    moment_ms: int
    copied_bytes: int
    containers: tuple[ContainerBackup, ...]

    def pieces(self) -> Iterator[Piece]:
        """Return all objects of the backup; the same one may come twice."""
        for container in self.containers:
            yield from container.index
            yield from container.chunks

    @property
    def total_bytes(self) -> int:
        """The length of everything that a restore reads."""
        return sum(piece.length for piece in set(self.pieces()))


def manifest_name(number: int) -> str:
    """Return the name of a manifest in the place."""
    return f"{MANIFESTS}/manifest-{number:012d}"


def manifest_number(name: str) -> int | None:
    """Return the inverse of `manifest_name`; None for another name."""
    found = _MANIFEST.fullmatch(name)
    return int(found[1]) if found else None


def encode(content: dict[str, Any]) -> bytes:
    """Return a JSON document with its version and a check."""
    text = json.dumps(content, sort_keys=True)
    return json.dumps({"version": VERSION, "check": digest_of(text.encode()), "content": content}).encode() + b"\n"


def decode(data: bytes, name: str) -> dict[str, Any]:
    """Return the inverse of `encode`.  Raises Corrupt, Invalid (a newer version)."""
    try:
        found = parse_json(data)
        version, check, content = found["version"], found["check"], found["content"]
    except (ValueError, KeyError, TypeError):
        raise Corrupt(f"{name} of the backup is damaged") from None
    if version != VERSION:
        raise Invalid(f"{name} of the backup is of format {version}; this version of Sarit reads {VERSION}")
    if not isinstance(content, dict) or check != digest_of(json.dumps(content, sort_keys=True).encode()):
        raise Corrupt(f"{name} of the backup is damaged: its check does not match")
    return content


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of a manifest."""
    content = asdict(manifest)
    for container in content["containers"]:
        for kind in ("index", "chunks"):
            container[kind] = [[piece["name"], piece["digest"], piece["length"]] for piece in container[kind]]
    return encode(content)


def decode_manifest(data: bytes, number: int) -> Manifest:
    """Return the inverse of `encode_manifest`.  Raises Corrupt, Invalid."""
    name = manifest_name(number)
    content = decode(data, name)
    try:
        containers = tuple(
            ContainerBackup(
                int(each["frame"]),
                tuple(Piece(*piece) for piece in each["index"]),
                tuple(Piece(*piece) for piece in each["chunks"]),
            )
            for each in content["containers"]
        )
        found = Manifest(
            int(content["number"]), str(content["node"]), int(content["moment_ms"]), int(content["copied_bytes"]),
            containers,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise Corrupt(f"{name} of the backup is damaged") from None
    if found.number != number:
        raise Corrupt(f"{name} of the backup is that of backup {found.number}")
    return found
