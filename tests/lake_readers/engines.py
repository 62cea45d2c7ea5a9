"""Engines that read Iceberg tables: Presto, Trino, DuckDB and Spark with Iceberg's runtime, each as users run it.

An engine answers SQL by `ask`.  Presto and Trino are servers on the loopback interface, from Maven; DuckDB and Spark
run in environments of their own, with the versions that their Iceberg extensions are built for."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.maven import CACHE, PeerMissing, class_path
from benchmarks.peers.ports import free_ports
from benchmarks.peers.process import Process
from tests.spark import matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE: Final = Path(__file__).resolve().parent
START_SECONDS: Final = 300  # only a hang takes that long
DUCKDB: Final = "1.5.5"  # its extensions for Iceberg and Avro are on PyPI; duckdb 2 has none there
SPARK: Final = "4.1"  # the newest one that Iceberg has a runtime for
JAVA_OF_TRINO: Final = (24, 99)
SMALL_JAVA: Final = (
    "-XX:+UseSerialGC", "-Djdk.attach.allowAttachSelf=true", "-Djava.net.preferIPv4Stack=true",
    "-Dnode.environment=test", "-Dnode.id=one", "-Dnode.internal-address=127.0.0.1", "-Dnode.bind-ip=127.0.0.1",
)  # fmt: skip
OPENED: Final = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "lang.reflect", "nio"))


class SqlServer:
    """A coordinator that is its own worker: Presto or Trino."""

    def __init__(
        self,
        directory: Path,
        catalogs: Mapping[str, Mapping[str, str]],
        *,
        trino: bool = False,
    ) -> None:
        (self._port,) = free_ports(1)
        self._user = "X-Trino-User" if trino else "X-Presto-User"
        name = "trino" if trino else "presto"
        libraries = class_path(name)
        etc = directory / "etc"
        (etc / "catalog").mkdir(parents=True)
        url = f"http://127.0.0.1:{self._port}"
        _write(
            etc / "config.properties",
            {
                "coordinator": "true", "node-scheduler.include-coordinator": "true",
                "http-server.http.port": str(self._port), "http-server.http.enabled": "true", "discovery.uri": url,
                "plugin.dir": str(_plugins(name)), "query.max-memory": "300MB", "query.max-memory-per-node": "300MB",
            } | ({} if trino else {"discovery-server.enabled": "true", "query.max-total-memory-per-node": "400MB"}),
        )  # fmt: skip
        for catalog, properties in catalogs.items():
            _write(etc / "catalog" / f"{catalog}.properties", properties)
        settings = ("-Xmx1400m", *SMALL_JAVA, f"-Dnode.data-dir={directory}/data", "-Dconfig=etc/config.properties")
        main: tuple[str, ...] = (
            "java",
            *OPENED,
            *settings,
            "-cp",
            libraries,
            "com.facebook.presto.server.PrestoServer",
        )
        if trino:
            opened = ("--add-modules=jdk.incubator.vector", "--sun-misc-unsafe-memory-access=allow")
            program = str(HERE / "java" / "TrinoServer.java")
            main = (newer_java(), *opened, *settings, "-cp", libraries, program)
        self._process = Process(main, directory, name)
        self._process.wait_until(self._serves, START_SECONDS)

    def ask(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query.  Raises AssertionError with the engine's error."""
        headers = {self._user: "test"}
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/v1/statement", sql.encode(), headers)
        rows: list[list[Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
                page = json.load(response)
            assert "error" not in page, f"{sql}: {page['error'].get('message')}"
            rows += page.get("data", [])
            if "nextUri" not in page:
                return rows
            request = urllib.request.Request(page["nextUri"], headers=headers)

    def _serves(self) -> bool:
        try:
            return self.ask("SELECT 1") == [[1]]
        except (OSError, urllib.error.URLError, AssertionError):  # no node is active yet
            time.sleep(0.2)
            return False

    def stop(self) -> None:
        """End it."""
        self._process.kill()


class RestCatalog:
    """Iceberg's own REST catalog, with SQLite behind it, and tables on S3."""

    def __init__(self, directory: Path, warehouse: str, s3: Mapping[str, str]) -> None:
        (port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{port}"
        behind = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "uri": f"jdbc:sqlite:{directory}/catalog.db",
            "warehouse": warehouse, "jdbc.schema-version": "V1", **s3,
        }  # fmt: skip
        properties = [f"{name}={value}" for name, value in behind.items()]
        program = str(HERE / "java" / "CatalogServer.java")
        command = ("java", "-Xmx256m", "-cp", class_path("iceberg-rest"), program, str(port), *properties)
        self._process = Process(command, directory, "rest", {"AWS_REGION": "us-east-1"})
        self._process.wait_until(self._serves, START_SECONDS)

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/v1/config", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        """End it."""
        self._process.kill()


class SqlProgram:
    """An engine in a Python process: it gets a query a line, as JSON, and answers with the rows or an error."""

    def __init__(self, python: Path, program: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        command = [str(python), str(HERE / program), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=None if env is None else dict(env)
        )

    def ask(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query.  Raises AssertionError with the engine's error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(sql) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the engine has ended: {self._process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, f"{sql}: {answer['error']}"
        rows: list[list[Any]] = answer["rows"]
        return rows

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def duckdb() -> SqlProgram:
    """Return DuckDB with its Iceberg extension."""
    home = CACHE.parent / f"duckdb-{DUCKDB}"
    python = home / "bin" / "python"
    matrix.uv("venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home))
    extensions = [f"duckdb-extension-{name}=={DUCKDB}" for name in ("avro", "iceberg")]
    matrix.uv("pip", "install", "--quiet", "--python", str(python), f"duckdb=={DUCKDB}", *extensions)
    return SqlProgram(python, "duckdb_child.py")


def jars() -> str:
    """Return Iceberg's jars for Spark, as `spark.jars` takes them."""
    return ",".join(str(jar) for jar in sorted(Path(class_path("spark-iceberg")[:-2]).glob("*.jar")))


def spark(catalogs: Mapping[str, Mapping[str, str]]) -> SqlProgram:
    """Return Spark with Iceberg's runtime and catalogs of these names and properties."""
    python = matrix.installed(SPARK)
    settings = {"spark.jars": jars()}
    for name, properties in catalogs.items():
        settings[f"spark.sql.catalog.{name}"] = "org.apache.iceberg.spark.SparkCatalog"
        settings |= {f"spark.sql.catalog.{name}.{key}": value for key, value in properties.items()}
    arguments = [f"{name}={value}" for name, value in settings.items()]
    env = matrix.environment(python) | {"AWS_REGION": "us-east-1"}
    return SqlProgram(python, "spark_child.py", *arguments, env=env)


def newer_java() -> str:
    """Return a Java that is new enough for Trino.  Raises PeerMissing."""
    for home in sorted(Path("/usr/lib/jvm").glob("*"), reverse=True):
        release = home / "release"
        found = release.read_text().partition('JAVA_VERSION="')[2] if release.exists() else ""
        if found and JAVA_OF_TRINO[0] <= int(found.partition(".")[0].partition('"')[0]) <= JAVA_OF_TRINO[1]:
            return str(home / "bin" / "java")
    raise PeerMissing(f"Trino needs Java {JAVA_OF_TRINO[0]}, which is not in /usr/lib/jvm")


def _write(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _plugins(name: str) -> Path:
    """Return the directory of an engine's plugins, which Maven brings as archives."""
    home = CACHE / name
    plugins = home / "plugins"
    archives: Sequence[Path] = sorted(home.glob("*.zip"))
    if not plugins.exists():
        for archive in archives:
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(home / "unpacked")
        (home / "unpacked").rename(plugins)
    return plugins
