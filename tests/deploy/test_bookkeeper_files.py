"""The documented configuration of bookies: what the documents say of it, and the units that start with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.components.bookkeeper import DOCUMENTED

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted(DOCUMENTED.parent.glob("*.service"))
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (`[^|]+) \|", re.MULTILINE)


def documented() -> dict[str, str]:
    """The keys and values of the file; each key stands in it once."""
    lines = [line for line in DOCUMENTED.read_text().splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def test_table_of_the_page_says_what_the_file_sets() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    table = page.partition("| in `bk_server.conf` | value | why |")[2].partition("\n\n")[0]
    rows = 0
    for keys, values in ROW.findall(table):
        said = re.findall(r"`([^`]+)`", values)
        for number, key in enumerate(re.findall(r"`([^`]+)`", keys)):
            if key != "httpServerClass":
                assert documented()[key] == said[min(number, len(said) - 1)], key
                rows += 1
    assert rows >= 7
    assert documented()["extraServerComponents"] == ""


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_supervisors_never_give_up_and_take_the_file(path: Path) -> None:
    text = path.read_text()
    for line in ("StartLimitIntervalSec=0", "Restart=always", "User=bookkeeper"):
        assert f"\n{line}\n" in text
    assert "BOOKIE_CONF=/etc/bookkeeper/bk_server.conf" in text
    # A bookie that starts on a full disk neither serves nor ends; auto recovery leaves the HTTP port to the bookie.
    assert ("/api/v1/bookie/is_ready" if path.name == "bookie.service" else "-DhttpServerEnabled=false") in text
    assert re.search(r"^ExecStart=/opt/bookkeeper/bin/bookkeeper (bookie|autorecovery)$", text, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_each_unit(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/opt/bookkeeper/bin/bookkeeper", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    words = [line for line in done.stderr.splitlines() if path.stem in line]
    assert (done.returncode, words) == (0, [])
