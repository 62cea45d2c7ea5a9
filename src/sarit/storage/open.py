"""Opens long-term storage by URL: `file:///var/lib/sarit/chunks`, `s3://bucket/prefix`, `hdfs://namenode/folder`; for
tests, `memory://`.

Endpoint, region and credentials of S3 come from the environment variables that other S3 tools use: AWS_ENDPOINT_URL
(or AWS_ENDPOINT_URL_S3), AWS_REGION (or AWS_DEFAULT_REGION), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN.  Without keys, obstore uses the credentials of the machine or container.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.storage.directory import open_directory
from sarit.storage.names import check_prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from obstore.store import S3Config

    from sarit.env.ports import Env
    from sarit.storage.port import ChunkStorage

_EXAMPLES = "file:///absolute/path, s3://bucket/prefix or hdfs://namenode:port/folder"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")


class _Kind(NamedTuple):
    """A kind of storage: all that the rest of the program asks about a URL's scheme.

    `check`: raises Invalid for a URL that names no place.  `opener`: opens the storage.  `on_disk`: chunks are files of
    this machine, whose free space is watched, and which are written in place; elsewhere each write is a request that
    costs money.  `lasting`: chunks outlive the process."""

    check: Callable[[str], object]
    opener: Callable[[str, Env, Mapping[str, str]], Awaitable[ChunkStorage]]
    on_disk: bool = False
    lasting: bool = True


async def open_storage(url: str, env: Env, environ: Mapping[str, str] | None = None) -> ChunkStorage:
    """Open the chunk storage at `url`.  Raises Invalid (with what to write instead), MissingExtra, Unavailable.

    `environ`: the environment variables; None: those of the process."""
    return await _kind(url).opener(url, env, os.environ if environ is None else environ)


def check_storage_url(url: str) -> None:
    """Check that `open_storage` accepts a URL, without opening it.  Raises Invalid (with what to write instead)."""
    _kind(url).check(url)


def check_lasting(url: str) -> None:
    """Check that chunks at `url` outlive the process that writes them.  Raises Invalid."""
    if not _kind(url).lasting:
        raise Invalid(f"--storage {url} is for tests: it loses everything when the node stops; use {_EXAMPLES}")


def directory_of_storage(url: str) -> str | None:
    """Return the directory of this machine that `url` names; None: chunks are elsewhere.  Raises Invalid."""
    return directory_of(url) if _kind(url).on_disk else None


def _kind(url: str) -> _Kind:
    """Return the kind of storage that a URL's scheme names.  Raises Invalid."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"storage URL {url!r}: {error}; use {_EXAMPLES}") from None
    if "@" in parts.netloc:  # do not repeat what may be a secret
        raise Invalid(f"a storage URL takes no user or key: set AWS_ACCESS_KEY_ID and the like; use {_EXAMPLES}")
    if parts.query or parts.fragment:
        raise Invalid(f"storage URL {url!r} takes no query or fragment; use {_EXAMPLES}")
    if parts.scheme not in _KINDS:
        raise Invalid(f"storage URL {url!r} is not supported; use {_EXAMPLES}")
    return _KINDS[parts.scheme]


def directory_of(url: str, what: str = "storage URL") -> str:
    """Return the absolute path of a file URL, which errors call `what`.  Raises Invalid."""
    host, path = urlsplit(url)[1:3]
    if host not in ("", "localhost"):
        raise Invalid(f"{what} {url} names the host {host}; for a local path write file:///{host}{path}")
    directory = unquote(path).rstrip("/")
    if not directory.startswith("/") or "\0" in directory:
        raise Invalid(f"{what} {url} needs an absolute path below the root: file:///absolute/path")
    return directory


async def _open_directory(url: str, env: Env, _environ: Mapping[str, str]) -> ChunkStorage:
    return await open_directory(directory_of(url), env)


def _hdfs_place(url: str) -> tuple[str, str]:
    """Return the namenode and the folder.  Raises Invalid."""
    namenode, path = urlsplit(url)[1:3]
    root = path.rstrip("/")
    try:
        check_prefix(root.removeprefix("/"))
    except Invalid:
        root = ""
    if not namenode or not root:
        raise Invalid(f"storage URL {url!r} needs a namenode and a folder below the root: hdfs://NAMENODE:PORT/folder")
    return namenode, root


async def _open_hdfs(url: str, env: Env, _environ: Mapping[str, str]) -> ChunkStorage:
    place = _hdfs_place(url)
    require("cluster", "long-term storage on HDFS")
    from sarit.storage.hdfs import open_hdfs

    return await open_hdfs(*place, env)


def _check_memory(url: str) -> None:
    if url.rstrip("/").lower() != "memory:":
        raise Invalid(f"storage URL {url!r} is not supported; use {_EXAMPLES}")


async def _open_memory(url: str, env: Env, _environ: Mapping[str, str]) -> ChunkStorage:
    _check_memory(url)
    require("node", "an object store")
    from sarit.storage.objects import open_memory

    return open_memory(env)


async def _open_s3(url: str, env: Env, environ: Mapping[str, str]) -> ChunkStorage:
    place = parse_s3(url)
    require("node", "an object store")
    from sarit.storage.objects import open_s3

    return open_s3(*place, s3_config(environ), env)


def parse_s3(url: str) -> tuple[str, str]:
    """Return bucket and prefix ("" for none) of s3://bucket/prefix.  Raises Invalid."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"storage URL {url!r}: {error}; use s3://bucket/prefix") from None
    if "@" in parts.netloc:  # do not repeat what may be a secret
        raise Invalid("a storage URL takes no user or key: set AWS_ACCESS_KEY_ID and the like; use s3://bucket/prefix")
    if parts.scheme != "s3" or parts.query or parts.fragment:
        raise Invalid(f"storage URL {url!r} is not one of an object store: use s3://bucket/prefix")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise Invalid(f"storage URL {url!r} names no bucket: s3://bucket/prefix (small letters, digits, '.' and '-')")
    bucket, prefix = parts.netloc, parts.path.strip("/")
    try:
        check_prefix(prefix)
    except Invalid:
        raise Invalid(f"storage URL {url!r}: {prefix!r} cannot be a prefix of chunk names") from None
    return bucket, prefix


def s3_config(environ: Mapping[str, str]) -> S3Config:
    """Return the S3 settings in the usual environment variables, without those that are not set."""
    config: S3Config = {}
    if endpoint := environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"):
        config["endpoint"] = endpoint
    if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        config["region"] = region
    if key := environ.get("AWS_ACCESS_KEY_ID"):
        config["access_key_id"] = key
    if secret := environ.get("AWS_SECRET_ACCESS_KEY"):
        config["secret_access_key"] = secret
    if token := environ.get("AWS_SESSION_TOKEN"):
        config["session_token"] = token
    return config


_KINDS = {
    "file": _Kind(directory_of, _open_directory, on_disk=True),
    "s3": _Kind(parse_s3, _open_s3),
    "hdfs": _Kind(_hdfs_place, _open_hdfs),
    "memory": _Kind(_check_memory, _open_memory, lasting=False),
}
