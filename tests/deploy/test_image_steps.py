"""The image without an engine that builds it: the steps of its Dockerfile in a folder, and what it starts, confined.

The first stage is run line by line.  The process then has what a container has: another user, no capabilities, a file
system that cannot be written but for its volume and /tmp.  The base image is replaced by Debian's Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from benchmarks.peers.ports import free_ports
from tests.deploy.test_image import DOCKERFILE, ROOT, instruction
from tests.limits import HANG_SECONDS

PYTHON = "/usr/bin/python3"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0 or not Path(PYTHON).exists(), reason="needs root and Debian's Python"),
    pytest.mark.skipif(not (shutil.which("unshare") and shutil.which("setpriv")), reason="needs unshare and setpriv"),
]

# In a mount namespace of its own: all is read-only, but for the volume and /tmp.
CONFINED = (
    "set -e; mount --make-rprivate /; volume=$1; shift; mount --bind $volume $volume; "
    "mount -t tmpfs tmpfs /tmp; mount -o remount,bind,ro /; "
    'exec setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all "$@"'
)


@pytest.fixture(scope="module")
def image():
    """A folder with what the first stage makes, readable to everybody."""
    # Not of pytest: its folders are closed to other users.
    with tempfile.TemporaryDirectory(prefix="sarit-image-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        build(folder)
        yield folder


def build(folder: Path) -> None:
    """Run the steps of the first stage, with its absolute paths below a folder."""
    (folder / "build").mkdir()
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(PYTHON)
    stage = re.sub(r"\\\n\s*(#.*\n\s*)*", " ", DOCKERFILE).split("\nFROM ")[1]
    # What says where packages come from, and who is trusted, is this machine's.
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environ["PATH"] = f"{folder / 'bin'}:/usr/bin:/bin"
    for line in stage.splitlines():
        word, _, rest = line.partition(" ")
        if word == "ARG":
            name, _, value = rest.partition("=")
            environ[name] = value.strip('"')
        elif word == "RUN":
            here = re.sub(r"(?<![\w.])/(tools|opt/sarit)\b", rf"{folder}/\1", rest)
            done = subprocess.run(here, shell=True, cwd=folder / "build", env=environ, capture_output=True, text=True)
            assert done.returncode == 0, f"{here}\n{done.stderr}"
        elif word == "COPY":
            *sources, to = [each for each in rest.split() if not each.startswith("--")]
            for source in sources:
                copy(ROOT / source, folder / to.lstrip("/") if to.startswith("/") else folder / "build" / to, rest)


def copy(source: Path, to: Path, options: str) -> None:
    """What COPY does: the content of a folder, or a file."""
    if source.is_dir():
        shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
        return
    target = to / source.name if to.is_dir() else to
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    if mode := re.search(r"--chmod=(\d+)", options):
        target.chmod(int(mode[1], 8))
        target.write_text(target.read_text().replace("#!/opt/", f"#!{to.parents[2]}/"))  # the probe's interpreter


def confined(image: Path, volume: Path, *command: str, **environ: str) -> subprocess.Popen[str]:
    """Start a command as the image's user, on a file system that it cannot write."""
    given = {"PATH": f"{image}/opt/sarit/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", CONFINED, "confined", str(volume), *command], env={**given, **environ},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=volume,
    )  # fmt: skip


def test_process_of_the_image_serves_with_nothing_but_its_volume(image):
    volume = image / "var-lib-sarit"
    volume.mkdir(mode=0o750)
    os.chown(volume, 10001, 10001)
    controller, store, http = free_ports(3)
    (words,) = instruction("CMD")
    command = [
        word.replace("/var/lib/sarit", str(volume)).replace("0.0.0.0", "127.0.0.1") for word in json.loads(words)
    ]
    ports = ["--controller-port", str(controller), "--store-port", str(store), "--http-port", str(http)]
    node = confined(image, volume, "sarit-entrypoint", *command, *ports)
    (check,) = instruction("HEALTHCHECK")
    probe = [*json.loads(check.partition("CMD ")[2])]
    try:
        end = time.monotonic() + HANG_SECONDS
        while run(image, volume, *probe, SARIT_HTTP_PORT=str(http))[0] != 0:
            assert node.poll() is None, node.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.2)
        status = Path(f"/proc/{node.pid}/status").read_text()
        assert re.search(r"^Uid:\s+10001\s+10001\s", status, re.MULTILINE)
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE)
        sarit = ("sarit-entrypoint", "scope", "list", "--controller", f"127.0.0.1:{controller}")
        while (found := run(image, volume, *sarit))[0] != 0:  # the health check says that it lives, not that it serves
            assert time.monotonic() < end, found
        code, said = run(image, volume, "touch", f"{image}/opt/sarit/anything")
        assert (code, "Read-only file system" in said) == (1, True), said
        node.send_signal(getattr(signal, instruction("STOPSIGNAL")[0]))
        said = node.communicate(timeout=HANG_SECONDS)[0]
        assert node.returncode == 0, said
        assert "everything acknowledged is on disk" in said
        assert "Traceback" not in said
    finally:
        node.kill()


def run(image: Path, volume: Path, *command: str, **environ: str) -> tuple[int, str]:
    """Run a command confined; its exit code and what it said."""
    process = confined(image, volume, *command, **environ)
    said = process.communicate(timeout=HANG_SECONDS)[0]
    return process.returncode, said
