"""Each dependency of a node at the edge, as it is locked, has a wheel for Linux on 64-bit ARM, or is pure Python."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.test_tidy import ROOT

EXTRAS = ("node", "mirror", "registry", "lake", "search", "tls")
# None: each of them has one.  What is added here is named in docs/operations/edge.md, too.
WITHOUT: frozenset[str] = frozenset()


def locked() -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return packages


def needed(packages: list[dict[str, Any]]) -> set[str]:
    """The names of what these extras bring, and what those bring."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        by_name.setdefault(package["name"], []).append(package)
    todo, seen = [("sarit", extra) for extra in ("", *EXTRAS)], set[tuple[str, str]]()
    while todo:
        name, extra = one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for package in by_name[name]:
            found = (
                package.get("optional-dependencies", {}).get(extra, ()) if extra else package.get("dependencies", ())
            )
            for each in found:
                todo += [(each["name"], more) for more in ("", *each.get("extra", ()))]
    return {name for name, _ in seen} - {"sarit"}


def runs_on_arm64(wheel: str, tag: str) -> bool:
    """Whether a wheel is for Linux (glibc) on 64-bit ARM and this Python, or for everything."""
    _, python, abi, platform = wheel.removesuffix(".whl").rsplit("-", 3)
    if platform == "any":
        return True
    if "manylinux" not in platform or "aarch64" not in platform:
        return False
    return tag in python.split(".") or (abi == "abi3" and int(python[3:]) <= int(tag[3:]))


@pytest.mark.parametrize("tag", ["cp311", "cp312", "cp313", "cp314"])
def test_each_dependency_has_a_wheel(tag: str) -> None:
    packages = locked()
    names = needed(packages)
    assert {"zstandard", "pyarrow", "cryptography", "uvloop", "crc32c"} <= names
    without = set()
    for name in names:
        wheels = [Path(w["url"]).name for p in packages if p["name"] == name for w in p.get("wheels", ())]
        if not any(runs_on_arm64(wheel, tag) for wheel in wheels):
            without.add(name)
    assert without == WITHOUT


def test_wheels_of_others_do_not_count() -> None:
    assert runs_on_arm64("h2-4.3.0-py3-none-any.whl", "cp311")
    assert runs_on_arm64("a-1-cp39-abi3-manylinux_2_28_aarch64.whl", "cp311")
    for other in (
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp311-cp311-macosx_11_0_arm64",
        "cp311-cp311-musllinux_1_2_aarch64",
        "cp312-cp312-manylinux_2_17_aarch64",
        "cp313-abi3-manylinux_2_17_aarch64",
    ):
        assert not runs_on_arm64(f"a-1-{other}.whl", "cp311")
