"""The place of indexes in a process: its directory, and what it costs a node without an index."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from sarit.core.extras import MissingExtra
from sarit.env.real import real_env
from sarit.process.search.site import SearchSite


def site(directory="") -> SearchSite:
    return SearchSite(SimpleNamespace(segments=None), None, real_env(), str(directory))


def test_node_without_an_index_imports_nothing_of_search():
    program = (
        "import sys, sarit.process.standalone, sarit.process.worker_role, sarit.process.child\n"
        "print(*[one for one in sys.modules if one.startswith(('sarit.search', 'tantivy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_directory_is_made_when_it_is_asked_for_and_removed_at_the_end(tmp_path):
    left = tmp_path / "search" / "index-7" / "shard"
    left.mkdir(parents=True)
    (left / "file").write_bytes(b"of a process that was killed")
    here = site(tmp_path)
    assert (left / "file").exists()
    made = here.directory("index-1")
    assert made == tmp_path / "search" / "index-1"
    assert [path.name for path in (tmp_path / "search").iterdir()] == ["index-1"]
    (made / "file").write_bytes(b"x")
    assert here.directory("copies").is_dir()
    assert (made / "file").exists()
    asyncio.run(here.close())
    assert list(tmp_path.iterdir()) == []
    asyncio.run(here.close())


def test_threads_that_ask_at_once_get_one_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    here = site()
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: here.directory("one").parent, range(64)))
    (made,) = found
    assert made.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [made]
    asyncio.run(here.close())
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_killed_process_is_removed_by_the_next_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    left, shared = (tmp_path / f"sarit-search-{name}" for name in ("left", "shared"))
    (left / "copies").mkdir(parents=True)
    (left / "copies" / "file").write_bytes(b"of a process that was killed")
    left.chmod(0o700)
    shared.mkdir()
    shared.chmod(0o755)  # it was not made by Sarit
    (tmp_path / "sarit-search-link").symlink_to(shared)
    others = {shared, tmp_path / "sarit-search-link"}
    lives, here = site(), site()
    (lives.directory("copies") / "file").write_bytes(b"x")
    assert here.directory("copies").is_dir()
    assert (lives.directory("copies") / "file").exists()
    assert set(tmp_path.iterdir()) == {lives.directory("copies").parent, here.directory("copies").parent, *others}
    asyncio.run(lives.close())
    asyncio.run(here.close())
    assert set(tmp_path.iterdir()) == others


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("sarit.core.extras._is_installed", lambda extra: extra != "search")
    with pytest.raises(MissingExtra, match=r"sarit\[search\]"):
        site().engine()
