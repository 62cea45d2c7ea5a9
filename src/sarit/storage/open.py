"""Opens long-term storage by URL: `file:///var/lib/sarit/chunks`, `s3://bucket/prefix`, `hdfs://namenode/folder`; for
tests, `memory://`.

Endpoint, region and credentials of S3 come from the environment variables that other S3 tools use: AWS_ENDPOINT_URL
(or AWS_ENDPOINT_URL_S3), AWS_REGION (or AWS_DEFAULT_REGION), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN.  Without keys, obstore uses the credentials of the machine or container.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sarit.core.errors import Invalid
from sarit.core.extras import require
from sarit.storage.directory import open_directory
from sarit.storage.names import check_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from obstore.store import S3Config

    from sarit.env.ports import Env
    from sarit.storage.port import ChunkStorage

_EXAMPLES = "file:///absolute/path, s3://bucket/prefix or hdfs://namenode:port/folder"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")


async def open_storage(url: str, env: Env, environ: Mapping[str, str] | None = None) -> ChunkStorage:
    """Open the chunk storage at `url`.  Raises Invalid (with what to write instead), MissingExtra, Unavailable.

    `environ`: the environment variables; None: those of the process."""
    parts = _split(url)
    if parts.scheme == "file":
        return await open_directory(_directory_of(url, parts.netloc, parts.path), env)
    if parts.scheme == "hdfs":
        return await _open_hdfs(*_hdfs_place(url, parts.netloc, parts.path), env)
    require("node", "an object store")
    from sarit.storage.objects import open_memory, open_s3

    if parts.scheme == "s3":
        config = s3_config(os.environ if environ is None else environ)
        return open_s3(*parse_s3(url), config, env)
    return open_memory(env)


def check_storage_url(url: str) -> None:
    """Check that `open_storage` accepts a URL, without opening it.  Raises Invalid (with what to write instead)."""
    parts = _split(url)
    if parts.scheme == "file":
        _directory_of(url, parts.netloc, parts.path)
    elif parts.scheme == "s3":
        parse_s3(url)
    elif parts.scheme == "hdfs":
        _hdfs_place(url, parts.netloc, parts.path)


def _split(url: str) -> SplitResult:
    """Return the parts of a URL whose kind is supported.  Raises Invalid."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid(f"storage URL {url!r}: {error}; use {_EXAMPLES}") from None
    if "@" in parts.netloc:  # do not repeat what may be a secret
        raise Invalid(f"a storage URL takes no user or key: set AWS_ACCESS_KEY_ID and the like; use {_EXAMPLES}")
    if parts.query or parts.fragment:
        raise Invalid(f"storage URL {url!r} takes no query or fragment; use {_EXAMPLES}")
    if parts.scheme == "memory" and not parts.netloc and parts.path in ("", "/"):
        return parts
    if parts.scheme not in ("file", "s3", "hdfs"):
        raise Invalid(f"storage URL {url!r} is not supported; use {_EXAMPLES}")
    return parts


def _hdfs_place(url: str, namenode: str, path: str) -> tuple[str, str]:
    """Return the namenode and the folder.  Raises Invalid."""
    root = path.rstrip("/")
    try:
        check_prefix(root.removeprefix("/"))
    except Invalid:
        root = ""
    if not namenode or not root:
        raise Invalid(f"storage URL {url!r} needs a namenode and a folder below the root: hdfs://NAMENODE:PORT/folder")
    return namenode, root


async def _open_hdfs(namenode: str, root: str, env: Env) -> ChunkStorage:
    require("cluster", "long-term storage on HDFS")
    from sarit.storage.hdfs import open_hdfs

    return await open_hdfs(namenode, root, env)


def _directory_of(url: str, host: str, path: str) -> str:
    if host not in ("", "localhost"):
        raise Invalid(f"storage URL {url!r} names the host {host!r}; for a local path write file:///{host}{path}")
    directory = unquote(path).rstrip("/")
    if not directory.startswith("/") or "\0" in directory:
        raise Invalid(f"storage URL {url!r} needs an absolute path below the root: file:///absolute/path")
    return directory


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
