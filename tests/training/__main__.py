"""Run the tests of `sarit.torch`, `sarit.datasets` and `sarit.ray`, with the frameworks: `make training`.

    python -m tests.training [test ...]

The frameworks have an environment of their own in `.cache`, made when it is missing: 6 GB, since the PyTorch of
PyPI brings CUDA.  The nodes of the tests run in the environment of development.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.spark.matrix import ROOT, uv

if TYPE_CHECKING:
    from pathlib import Path

FRAMEWORKS = ("torch==2.15.*", "torchdata==0.11.*", "datasets==5.2.*", "ray[data]==2.60.*")
TOOLS = ("pytest>=8.4", "pytest-timeout>=2.4")


def installed() -> Path:
    """The Python of the environment, with this Sarit."""
    home = ROOT / ".cache" / "training"
    python = home / "bin" / "python"
    uv("venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home))
    uv("pip", "install", "--quiet", "--python", str(python), *FRAMEWORKS, *TOOLS, "--editable", ".[registry]")
    return python


def environment() -> dict[str, str]:
    """Variables of a run: nothing is fetched, and nothing is reported to anybody."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "VIRTUAL_ENV")}
    return kept | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def main() -> int:
    """0 when all tests pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", default=["tests/training"])
    given = parser.parse_args()
    # The configuration of the other tests needs what this environment does not have.
    command = [str(installed()), "-m", "pytest", "--confcutdir", "tests/training", "-m", "long or not long"]
    return subprocess.run([*command, *given.tests], cwd=ROOT, env=environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
