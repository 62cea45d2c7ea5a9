"""Writes the next version everywhere, and the changelog of it: `python -m tools.next_version 0.2.0`.

The changelog grows by fragments, one file for each change, so that two changes never touch the same line:
`changelog.d/NAME.KIND.md`, with the items as they are to stand in CHANGELOG.md.  KIND is one of `KINDS`.  A version
takes the fragments in, below its heading, and deletes them.  Why: docs/decisions/0604.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = ("added", "changed", "fixed", "removed", "security")
HEADING: Final = "## Unreleased"
# Files that name the version: pyproject.toml, what is in deploy/, and pages that name the wheel or the image.
PLACES: Final = ("pyproject.toml", "README.md", "deploy/**/*", "docs/*.md", "docs/[!d]*/*.md")
_BEFORE: Final = r"(^version = \"|^version: |^appVersion: |^ARG VERSION=|\bsarit[-:])"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each kind.  Raises ValueError for a name or a text that is no fragment."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.glob("*")):
        if path.name == "README.md":
            continue
        kind = path.name.removesuffix(".md").rpartition(".")[2]
        if kind not in KINDS or path.suffix != ".md":
            raise ValueError(f"{path.name}: a fragment is NAME.KIND.md, and KIND one of {', '.join(KINDS)}")
        lines = path.read_text().splitlines()
        if not lines or not lines[0].startswith("- ") or any(line[:2] not in ("- ", "  ") for line in lines):
            raise ValueError(f"{path.name}: a fragment is items, which begin with '- ' and go on with two spaces")
        found[kind].append(path)
    return found


def joined(changelog: str, found: dict[str, list[Path]], heading: str) -> str:
    """Return the changelog with the fragments below a heading, before what stood there as not released."""
    sections = [
        f"### {kind.capitalize()}\n\n" + "\n".join(path.read_text().rstrip("\n") for path in paths)
        for kind, paths in found.items()
        if paths
    ]
    body = "\n\n".join([f"## {heading}", *sections]) + "\n"
    if f"{HEADING}\n" in changelog:
        return changelog.replace(f"{HEADING}\n", body, 1)
    first = changelog.index("\n## ") + 1  # the version before
    return f"{changelog[:first]}{body}\n{changelog[first:]}"


def with_version(text: str, old: str, new: str) -> str:
    """Return a text that names another version of Sarit, of its chart or of its image."""
    return re.sub(_BEFORE + re.escape(old) + r"(?![\w.]*\d)", lambda found: found[1] + new, text, flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Change the files; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.next_version", description=__doc__.partition("\n")[0])
    parser.add_argument("version")
    new = parser.parse_args(arguments).version
    if not _VERSION.fullmatch(new):
        parser.error(f"{new} is no version: write it as 0.2.0, or 0.2.0rc1")
    old = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = fragments(ROOT / "changelog.d")
    changelog = ROOT / "CHANGELOG.md"
    today = datetime.datetime.now(datetime.UTC).date()
    changelog.write_text(joined(changelog.read_text(), found, f"{new} ({today})"))
    for path in sorted({path for place in PLACES for path in ROOT.glob(place) if path.is_file()}):
        text = path.read_text()
        if (changed := with_version(text, old, new)) != text:
            path.write_text(changed)
    for path in (path for paths in found.values() for path in paths):
        path.unlink()
    subprocess.run([Path(sys.executable).with_name("uv"), "lock", "--quiet"], cwd=ROOT, check=True)
    print(f"{old} -> {new}: read the changes, run the tests, commit, `git tag v{new}`, and `make release`")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
