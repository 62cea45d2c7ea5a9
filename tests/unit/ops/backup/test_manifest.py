"""The bytes of a backup place (docs/formats/backup.md)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sarit.core.errors import Corrupt, Invalid
from sarit.ops.backup.manifest import (
    ContainerBackup,
    Manifest,
    Piece,
    decode_manifest,
    encode,
    encode_manifest,
    manifest_name,
    manifest_number,
    piece_of,
)

NODE = "00112233445566778899aabbccddeeff"
PART = Piece("", "ab" * 20, 4096)
CHUNK = Piece("c0000/e0000000001/000000000001-s5-0", "cd" * 20, 100)
MANIFEST = Manifest(7, NODE, 1_700_000_000_000, 4196, (ContainerBackup(12, (PART, PART), (CHUNK,)),))


def test_place_has_the_bytes_of_the_format() -> None:
    check = "954c2b579d733dc8acb8cfe3582b50c6b9fe61d8"
    expected = f'{{"version": 1, "check": "{check}", "content": {{"node": "{NODE}"}}}}\n'
    assert encode({"node": NODE}) == expected.encode()


def test_manifest_round_trips_and_counts_each_object_once() -> None:
    data = encode_manifest(MANIFEST)
    assert decode_manifest(data, 7) == MANIFEST
    assert MANIFEST.total_bytes == 4196
    assert json.loads(data)["content"]["containers"] == [
        {"frame": 12, "index": [["", "ab" * 20, 4096]] * 2, "chunks": [[CHUNK.name, "cd" * 20, 100]]}
    ]


@pytest.mark.parametrize("piece", [PART, CHUNK])
def test_names_of_objects_say_what_they_hold(piece) -> None:
    assert piece_of(piece.object_name) == piece
    assert piece_of(piece.object_name.replace("-", "_", 1)) != piece


def test_names_of_manifests() -> None:
    assert manifest_name(7) == "backup/manifest-000000000007"
    assert manifest_number(manifest_name(7)) == 7
    assert manifest_number("backup/running") is None


def test_damage_and_newer_versions_are_refused() -> None:
    data = encode_manifest(MANIFEST)
    for at in range(0, len(data) - 1, 3):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises((Corrupt, Invalid)):
            decode_manifest(bytes(damaged), 7)
    with pytest.raises(Invalid, match="of format 2"):
        decode_manifest(data.replace(b'"version": 1', b'"version": 2'), 7)
    with pytest.raises(Corrupt, match="is that of backup 8"):
        decode_manifest(encode_manifest(replace(MANIFEST, number=8)), 7)
