"""The extras of `pip install`: which packages each brings, and the one error about packages that are not installed.

A client needs none of them.  `require` stands in front of the import of such a package, wherever that is.  A new extra
is a line of `EXTRAS`, and its packages in pyproject.toml (docs/decisions/0801).
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import Final

from sarit.core.errors import Invalid

# extra -> the modules of its packages, and the extras that it includes.
EXTRAS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "arrow": (("numpy", "pyarrow"), ()),
    "cluster": (("kazoo", "slatedb", "hdfs_native"), ("node",)),
    "lake": (("pyiceberg", "sqlalchemy"), ("registry",)),
    "mirror": (("zstandard",), ()),
    "search": (("tantivy",), ()),
    "node": (
        ("argon2", "jwt", "obstore", "prometheus_client", "sortedcontainers", "starlette", "uvicorn", "uvloop"),
        (),
    ),
    "registry": (("fastavro",), ("arrow",)),
    "spark": (("pyspark",), ("arrow",)),
    "sql": (("duckdb",), ("registry",)),
    "tls": (("cryptography",), ()),
    "traces": (("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"), ()),
}


class MissingExtra(Invalid, ImportError):
    """Packages of an extra are not installed: the text has the command that installs them."""


def require(extra: str, user: str) -> None:
    """Check that the packages of an extra are installed; `user`, as "Parquet", needs them.  Raises MissingExtra."""
    if not _is_installed(extra):
        raise MissingExtra(f"{user} needs packages that are not installed: {install_command(extra)}")


def _is_installed(extra: str) -> bool:
    modules, included = EXTRAS[extra]
    return all(map(_is_found, modules)) and all(map(_is_installed, included))


def _is_found(module: str) -> bool:
    try:
        return sys.modules.get(module) is not None or find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains the module is missing
        return False


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from the place that it came from."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("sarit").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}  # this copy of Sarit has no metadata, as one of Spark's --py-files
    url = origin.get("url")
    if url is not None and "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f'pip install "sarit[{extra}]{"" if url is None else f" @ {url}"}"'
