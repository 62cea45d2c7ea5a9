"""Run the tests of the Spark connector with each PySpark that it supports: `make spark-matrix`.

    python -m tests.spark.matrix [--version 4.1 ...] [test ...]

Each version has an environment of its own in `.cache`, with the locked dependencies and another PySpark.  With one that
is too old the connector must say so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sarit.env.real import RealClock

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).with_name("uv"))
SUPPORTED = ("4.1", "4.2", "4.3")
TOO_OLD = "4.0"
REFUSAL = "needs PySpark 4.1 or newer"
TESTS = ("tests/unit/spark", "tests/spark")
NOT_LOCKED = re.compile(r"(pyspark|py4j)==")
OLD_READ = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.format("sarit").option("stream", "s/t").load()
"""


def installed(version: str) -> Path:
    """The Python of an environment with the newest PySpark of a version; it is made when it is missing."""
    home = ROOT / ".cache" / f"spark-{version}"
    python = home / "bin" / "python"
    uv("venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home))
    exported = uv(
        "export", "--quiet", "--locked", "--no-emit-project", "--no-hashes", "--no-default-groups", "--group", "dev"
    )
    locked = home / "locked.txt"
    locked.write_text("".join(line for line in exported.splitlines(keepends=True) if not NOT_LOCKED.match(line)))
    install = ("pip", "install", "--quiet", "--python", str(python))
    uv(*install, "--requirements", str(locked), f"pyspark=={version}.*")
    uv(*install, "--no-deps", "--editable", str(ROOT))
    return python


def uv(*command: str) -> str:
    """What a command of uv prints."""
    return subprocess.run([UV, *command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def environment(python: Path) -> dict[str, str]:
    """Of a run with this Python: no other Spark, and loopback alone."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "VIRTUAL_ENV", "PYTHONPATH")
    }
    path = os.pathsep.join([str(python.parent), kept["PATH"]])
    spark = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    # Spark starts its Python processes itself, as it does for users.
    return kept | spark | {"PATH": path, "SARIT_TEST_FRESH": "1"}


def passes(version: str, tests: Sequence[str]) -> bool:
    """Run the tests with one version; whether all passed."""
    python = installed(version)
    clock, env = RealClock(), environment(python)
    began = clock.monotonic()
    # Two processes, each with one Spark session for all its files, as in `make test`.
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *tests]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False)
    print(f"PySpark {version}: {'passed' if done.returncode == 0 else 'FAILED'} in {clock.monotonic() - began:.0f} s")
    return done.returncode == 0


def refuses_old() -> bool:
    """Whether a PySpark that is too old gets a clear error."""
    python = installed(TOO_OLD)
    done = subprocess.run(
        [str(python), "-c", OLD_READ], cwd=ROOT, env=environment(python), check=False, capture_output=True, text=True
    )
    clear = done.returncode != 0 and REFUSAL in done.stderr
    print(f"PySpark {TOO_OLD}: {'refused' if clear else 'NOT REFUSED: ' + done.stderr[-2000:]}")
    return clear


def main() -> int:
    """0 when every version passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="append", choices=(TOO_OLD, *SUPPORTED))
    parser.add_argument("tests", nargs="*", default=TESTS)
    given = parser.parse_args()
    outcomes = [
        refuses_old() if version == TOO_OLD else passes(version, given.tests)
        for version in given.version or (TOO_OLD, *SUPPORTED)
    ]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
