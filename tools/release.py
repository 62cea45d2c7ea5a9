"""Builds a release into dist/release: `make release`, or `python -m tools.release`.

    wheel and sdist ─▶ twine check ─▶ chart ─▶ SBOM ─▶ image ─▶ SHA256SUMS

Each file is the same, byte for byte, whenever the same commit is built; the image is not.  Nothing is sent anywhere.
`python -m tools.next_version` goes before: it writes the version and the changelog.  Why: docs/decisions/0604.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import uuid
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "dist" / "release"
CHART: Final = ROOT / "deploy" / "helm" / "sarit"
ENGINES: Final = ("docker", "podman")
_BIN: Final = Path(sys.executable).parent
_PLACEHOLDER: Final = ".example/"  # a name that is nobody's (RFC 2606)


class Refused(Exception):
    """Nothing is built: the text says why."""


def run(*command: object, **environ: str) -> str:
    """Return what a command prints.  Raises Refused with its words."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def build_packages(out: Path, epoch: str) -> None:
    """Build wheel and sdist, and check what an index would show of them."""
    run(_BIN / "uv", "build", "--quiet", "--no-build-isolation", "--out-dir", out, SOURCE_DATE_EPOCH=epoch)
    (out / ".gitignore").unlink(missing_ok=True)  # of uv
    run(_BIN / "twine", "check", "--strict", *sorted(out.iterdir()))


def package_chart(out: Path, version: str, epoch: str) -> None:
    """Write the chart as `helm package` does: a folder of its name in a tar file."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = int(epoch)
        entry.mode = 0o644
        return entry

    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    target = out / f"sarit-chart-{version}.tgz"
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=int(epoch)) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in files:
            archive.add(path, f"sarit/{path.relative_to(CHART).as_posix()}", filter=plain)


def write_sbom(out: Path, version: str, epoch: str) -> None:
    """Write what the extras of the wheel bring at the versions of uv.lock, as CycloneDX."""
    chosen = ("--locked", "--no-default-groups", "--all-extras")
    bill: dict[str, Any] = json.loads(run(_BIN / "uv", "export", "--quiet", *chosen, "--format", "cyclonedx1.5"))
    # uv has no option for these: they would differ from build to build.
    locked = hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{version} {locked}')}"
    bill["metadata"]["timestamp"] = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).isoformat()
    (out / f"sarit-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def build_image(out: Path, version: str, commit: str) -> str:
    """Build and save the image; return what became of it, for a person."""
    for engine in ENGINES:
        if shutil.which(engine) is None:
            continue
        if subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
            continue  # its daemon does not run
        tag, target = f"sarit:{version}", out / f"sarit-{version}-image.tar"
        labels = ("--build-arg", f"VERSION={version}", "--build-arg", f"REVISION={commit}")
        run(engine, "build", "--file", "deploy/docker/Dockerfile", "--tag", tag, *labels, ".")
        run(engine, "save", "--output", target, tag)
        return f"image: {target.name}, by {engine}"
    return f"image: left out, since none of {', '.join(ENGINES)} runs here"


def write_sums(out: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = []
    for path in sorted(out.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (out / "SHA256SUMS").write_text("".join(lines))


def release(out: Path, *, dirty: bool) -> list[str]:
    """Build everything into an empty folder; return lines for a person.  Raises Refused."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version, commit = project["version"], run("git", "rev-parse", "HEAD").strip()
    if run("git", "status", "--porcelain") and not dirty:
        raise Refused("the tree has changes that are in no commit: commit them, or give --dirty for a trial")
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    out.mkdir(parents=True)
    build_packages(out, epoch)
    package_chart(out, version, epoch)
    write_sbom(out, version, epoch)
    said = [build_image(out, version, commit)]
    write_sums(out)
    if _PLACEHOLDER in project["urls"]["Repository"]:
        said.append("not to be published: Repository in pyproject.toml is a placeholder")
    return said


def main(arguments: list[str]) -> int:
    """Build, and print what was built; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__.partition("\n")[0])
    parser.add_argument("--dirty", action="store_true", help="although there are changes that are in no commit")
    options = parser.parse_args(arguments)
    shutil.rmtree(OUT, ignore_errors=True)
    try:
        said = release(OUT, dirty=options.dirty)
    except Refused as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(OUT.iterdir()):
        print(f"{path.stat().st_size:>12,} {path.relative_to(ROOT)}")
    print("\n".join(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
