"""What Sarit writes is for its own user alone, whatever the umask; directories of before still start."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.backups import write_orders
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.secured import ON

if TYPE_CHECKING:
    from pathlib import Path

# A process that is started so makes files that everybody may write, unless it says otherwise.
OPEN_UMASK = ("sh", "-c", 'umask 0; exec "$0" "$@"', SARIT)


def _run(*words: object) -> None:
    done = subprocess.run(
        [*OPEN_UMASK, *map(str, words)], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _open_to_others(top: Path) -> dict[str, str]:
    """Modes of what others may read, write or list."""
    found = {}
    for path in [top, *top.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077:
            found[str(path.relative_to(top))] = oct(mode)
    return found


@pytest.mark.parametrize("options", [(), pytest.param(("--processes", "2"), marks=pytest.mark.long)])
def test_files_of_a_node_of_its_backups_and_of_what_is_restored_are_its_users_alone(tmp_path, options):
    data, backups, restored, chunks = (tmp_path / name for name in ("a/data", "backups", "restored", "b/chunks"))
    (tmp_path / "a").mkdir()
    with RunningNode(data, *options, "--storage", f"file://{chunks}", sarit=OPEN_UMASK) as node:
        write_orders(node.controller, 3000)
        _run("backup", "create", backups, "--data-dir", data)
        assert list(data.rglob("*.sqlite-wal")) or list(data.rglob("*-wal"))
        for top in (data, tmp_path / "b", backups):
            assert _open_to_others(top) == {}
    assert _open_to_others(data) == {}
    _run("restore", backups, "--data-dir", restored)
    assert _open_to_others(restored) == {}
    assert _open_to_others(backups) == {}


@pytest.mark.skipif(ON, reason="its own options")
def test_directory_of_before_starts_and_is_named(tmp_path):
    data = tmp_path / "data"
    with RunningNode(data):
        pass
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with RunningNode(data) as node:
        write_orders(node.controller, 1)
    log = (tmp_path / "data.log").read_text()
    assert log.count("can be read by others of this machine: chmod -R go-rwx") == 1, log
    os.system(f"chmod -R go-rwx {data}")
    with RunningNode(data):
        pass
    assert (tmp_path / "data.log").read_text().count("can be read by others") == 1
