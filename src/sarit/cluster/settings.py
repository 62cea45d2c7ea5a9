"""The address of a cluster in ZooKeeper, and its description there.

The description is written once, by `sarit cluster init`, to the register META.  Each store and each controller reads it
when it starts, and compares it with its options.  All other settings of a process are its own.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from sarit.cluster.limits import MAX_STORE_LEASE_SECONDS, MIN_STORE_LEASE_SECONDS
from sarit.coordination.limits import MAX_CONTAINERS, STORE_LEASE_SECONDS
from sarit.core.errors import Invalid
from sarit.process.places.bookkeeper_logs import parse_log_url
from sarit.storage.open import check_lasting, check_storage_url, directory_of, parse_s3

META: Final = "meta"
META_VERSION: Final = 1
DEFAULT_CLUSTER_CONTAINERS: Final = 16

_EXAMPLE: Final = "zookeeper://HOST:PORT,HOST:PORT/NAME"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of a cluster: the `hosts` of ZooKeeper with commas, and the cluster's name."""

    hosts: str
    name: str

    @property
    def root(self) -> str:
        """The ZooKeeper node under which all nodes of the cluster are."""
        return f"/sarit/{self.name}"

    def __str__(self) -> str:
        return f"zookeeper://{self.hosts}/{self.name}"


def parse_cluster(url: str) -> ClusterAddress:
    """Parse the URL of a cluster.  Raises Invalid, with an example."""
    scheme, found, rest = url.strip().partition("://")
    hosts, _, name = rest.partition("/")
    if not found or scheme != "zookeeper":
        raise Invalid(f"{url!r} names no cluster: write {_EXAMPLE}")
    for host in hosts.split(","):
        matched = _HOST.fullmatch(host)
        if matched is None or not 0 < int(matched[2]) <= _MAX_PORT:
            raise Invalid(f"{url!r}: {host!r} is no HOST:PORT of ZooKeeper; write {_EXAMPLE}")
    if not _NAME.fullmatch(name):
        raise Invalid(f"{url!r}: the name of the cluster comes last, of letters, digits, '.', '_', '-': {_EXAMPLE}")
    return ClusterAddress(hosts, name)


@dataclass(frozen=True, slots=True)
class ClusterMeta:
    """The description of a cluster.

    `cluster`: its id, 32 hexadecimal digits.  `secret`: proves to stores that a request comes from a controller.
    `log`, `index`, `storage`: URLs.  `machine`: the machine with the directories of log and index, if these are
    directories.  `lease_seconds`: after so long without a heartbeat a store counts as gone.  `complete`: log and
    storage are marked as this cluster's.  `restoring`: the backup (and its node) whose restore has begun, not ended."""

    cluster: str
    secret: str
    containers: int
    log: str
    index: str
    storage: str
    machine: str
    lease_seconds: float = STORE_LEASE_SECONDS
    complete: bool = False
    restoring: str = ""

    def encode(self) -> bytes:
        """Encode the description as JSON, the value of the register."""
        fields = asdict(self)
        if not self.restoring:  # earlier releases do not know it
            del fields["restoring"]
        return json.dumps({"version": META_VERSION, **fields}, indent=1).encode()

    def finished(self) -> ClusterMeta:
        """Return the description marked as complete."""
        return replace(self, complete=True)

    @property
    def log_directory(self) -> str | None:
        """The directory of the log; None: the log is on BookKeeper."""
        return directory_of(self.log, "--log") if _is_file(self.log) else None

    @property
    def index_directory(self) -> str | None:
        """The directory of the index; None: it is on an object store."""
        return directory_of(self.index, "--index") if _is_file(self.index) else None

    @property
    def on_one_machine(self) -> bool:
        """Whether stores share a directory: file locks exclude each other only on one machine."""
        return _is_file(self.log) or _is_file(self.index)

    def checked(self) -> ClusterMeta:
        """Check the description.  Returns it.  Raises Invalid: a setting is out of its bounds."""
        if not 1 <= self.containers <= MAX_CONTAINERS:
            raise Invalid(f"a cluster has 1 to {MAX_CONTAINERS} containers, not {self.containers} (--containers)")
        if not MIN_STORE_LEASE_SECONDS <= self.lease_seconds <= MAX_STORE_LEASE_SECONDS:
            raise Invalid(
                f"--lease takes {MIN_STORE_LEASE_SECONDS:g} to {MAX_STORE_LEASE_SECONDS:g} seconds, not "
                f"{self.lease_seconds:g}"
            )
        check_log_url(self.log)
        check_index_url(self.index)
        check_cluster_storage(self.storage)
        return self

    def compare(self, given: dict[str, object]) -> None:
        """Check that the options of a process equal the description.  `given`: None: not given.  Raises Invalid."""
        for name, value in given.items():
            actual = getattr(self, name)
            if value is not None and value != actual:
                raise Invalid(f"this cluster was made with --{name} {actual}, not {value}: give that, or leave it out")


def decode_meta(data: bytes) -> ClusterMeta:
    """Decode a description.  Raises Invalid: it has a newer version, or is no description."""
    try:
        fields = dict(json.loads(data))
        version = fields.pop("version")
        if isinstance(version, int) and version > META_VERSION:
            raise Invalid(f"this cluster is of format {version}, and this version of Sarit reads {META_VERSION}")
        return ClusterMeta(**fields)
    except Invalid:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"the description of this cluster cannot be read: {error}") from None


def check_log_url(url: str) -> None:
    """Check that a cluster can have its durable log at a URL.  Raises Invalid."""
    if urlsplit(url).scheme == "bookkeeper":
        parse_log_url(url)
    elif _is_file(url):
        directory_of(url, "--log")
    else:
        raise Invalid(
            f"--log {url}: write file:///absolute/path, a directory that all stores of the cluster share, or "
            "bookkeeper://zk1:2181,zk2:2181/ledgers"
        )


def check_index_url(url: str) -> None:
    """Check that a cluster can have its index at a URL.  Raises Invalid."""
    if _is_file(url):
        directory_of(url, "--index")
    else:
        parse_s3(url)


def check_cluster_storage(url: str) -> None:
    """Check that a cluster can have its long-term storage at a URL.  Raises Invalid."""
    check_storage_url(url)
    check_lasting(url)


def _is_file(url: str) -> bool:
    return urlsplit(url).scheme == "file"
