"""A release is whole, the same twice, and says what is missing; the version and the URL are the same everywhere."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tomllib
import zipfile
from email import message_from_bytes

import pytest
import yaml

from tools import release
from tools.package_readme import absolute_links

ROOT = release.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION, URL = PROJECT["version"], PROJECT["urls"]["Repository"]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Make a `docker` that ends with a code and writes its words to the file `calls`; there is no other engine."""

    def make(code: int) -> None:
        program = tmp_path / "bin" / "docker"
        program.parent.mkdir()
        save = '[ "$1" = save ] && echo layers > "$3"'
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{save}\nexit {code}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setattr(release, "ENGINES", ("docker",))

    return make


def test_image_is_built_and_saved_where_an_engine_runs(engine, tmp_path):
    engine(0)
    said = release.build_image(tmp_path, VERSION, "abc")
    assert said == f"image: sarit-{VERSION}-image.tar, by docker"
    assert (tmp_path / f"sarit-{VERSION}-image.tar").read_text() == "layers\n"
    _, build, save = (tmp_path / "calls").read_text().splitlines()
    assert build.startswith(f"build --file deploy/docker/Dockerfile --tag sarit:{VERSION} ")
    assert "REVISION=abc" in build
    assert save.endswith(f" sarit:{VERSION}")


@pytest.mark.parametrize("engines", [("no-such-engine",), ("docker",)])
def test_image_that_cannot_be_built_is_left_out_and_said(engine, engines, tmp_path, monkeypatch):
    engine(1)  # its daemon does not run
    monkeypatch.setattr(release, "ENGINES", engines)
    assert "left out" in release.build_image(tmp_path, VERSION, "abc")
    assert not list(tmp_path.glob("*.tar"))


def test_chart_is_the_folder_and_the_same_whenever_it_is_packed(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        release.package_chart(tmp_path / name, VERSION, "1700000000")
    (one,), (two,) = (list((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        packed = {entry.name: archive.extractfile(entry).read() for entry in archive}
    files = {f"sarit/{path.relative_to(release.CHART)}": path for path in release.CHART.rglob("*") if path.is_file()}
    assert packed == {name: path.read_bytes() for name, path in files.items()}


def test_bill_names_the_packages_of_the_lock_and_is_the_same_twice(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        release.write_sbom(tmp_path / name, VERSION, "1700000000")
    (one,), (two,) = (list((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    bill = json.loads(one.read_bytes())
    named = {(each["name"], each["version"]) for each in bill["components"]}
    locked = {(each["name"], each.get("version")) for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert named <= locked
    assert {"h2", "obstore", "pyarrow", "kazoo", "pyspark", "cryptography"} <= {name for name, _ in named}
    assert "pytest" not in {name for name, _ in named}


def test_sums_are_those_of_the_files(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"")
    release.write_sums(tmp_path)
    expected = [f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in (("a", b"a"), ("b", b""))]
    assert (tmp_path / "SHA256SUMS").read_text() == "".join(expected)


def test_tree_with_changes_is_refused(monkeypatch, tmp_path):
    said = {"status": " M README.md\n", "rev-parse": "abc\n"}
    monkeypatch.setattr(release, "run", lambda *words, **_: said[words[1]])
    with pytest.raises(release.Refused, match="changes that are in no commit"):
        release.release(tmp_path / "out", dirty=False)
    assert not (tmp_path / "out").exists()


def test_relative_links_become_absolute_and_others_stay():
    text = "[a](docs/a.md#b) [b](https://x.example/y) [c](#here) ![d](e.png)\n    pip install 'x[y]'\n"
    assert absolute_links(text, "https://r/") == (
        "[a](https://r/docs/a.md#b) [b](https://x.example/y) [c](#here) ![d](https://r/e.png)\n    pip install 'x[y]'\n"
    )


def test_description_of_the_wheel_leads_to_files_that_exist(tmp_path):
    uv = release._BIN / "uv"
    release.run(uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"sarit-{VERSION}.dist-info/METADATA"))
    description = metadata.get_payload()
    links = re.findall(r"\]\(([^()\s]+)\)", description)
    assert len(links) > 5
    base = f"{URL}/blob/v{VERSION}/"
    for link in links:
        assert link.startswith(("https://", "#"))
        if link.startswith(base):
            assert (ROOT / link.removeprefix(base).partition("#")[0]).exists(), link
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= {
        line.partition(",")[0] for line in metadata.get_all("Project-URL")
    }


def test_version_and_url_are_the_same_everywhere():
    chart = yaml.safe_load((release.CHART / "Chart.yaml").read_text())
    assert (chart["version"], str(chart["appVersion"])) == (VERSION, VERSION)
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text()
    assert f"ARG VERSION={VERSION}\n" in dockerfile
    assert f'org.opencontainers.image.source="{URL}"' in dockerfile
    assert chart["home"] == URL
    assert f"<{URL}/security/advisories/new>" in (ROOT / "SECURITY.md").read_text()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.yaml")]
    named = {version for page in pages for version in re.findall(r"\bsarit[-:](\d+\.\d+\.\d+)", page.read_text())}
    assert named == {VERSION}


def test_ci_runs_files_that_exist():
    (ROOT / ".ci" / "run").resolve(strict=True)
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = [word for line in commands for word in line.split() if re.fullmatch(r"\.?\w[\w/]*/\w[\w.]*", word)]
    assert set(named) == {".ci/run", "tests/client_smoke.py"}
    for name in named:
        assert (ROOT / name).is_file(), name
    supported = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    assert jobs["client"]["strategy"]["matrix"]["python"] == supported
