"""Java packages of a peer, downloaded once from Maven into `.cache/peers/NAME` (git-ignored).

The pom in this folder lists the packages; they are downloaded again when the pom changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "peers"
DOWNLOAD_SECONDS = 900


class PeerMissing(Exception):
    """A peer that cannot be started here, with the reason; its rows are left out of the table."""


def class_path(name: str) -> str:
    """The class path of `NAME-pom.xml`.  Raises PeerMissing where there is no Java, no Maven or no download."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise PeerMissing(f"{name} needs {tool}, which is not here")
    pom = HERE / f"{name}-pom.xml"
    target = CACHE / name
    stamp = target / "pom.sha256"
    wanted = hashlib.sha256(pom.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        _copy(pom, target)
        stamp.write_text(wanted)
    return f"{target}/*"


def _copy(pom: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [
        "mvn", "-B", "-q", "-f", str(pom), f"-Dmaven.repo.local={CACHE / 'm2'}", "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={target}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    if done.returncode:
        raise PeerMissing(f"Maven brought no {target.name}: {done.stdout[-500:]}{done.stderr[-500:]}")
