"""Runs rows one after the other, and records the noise of the machine."""

from __future__ import annotations

import json
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Load, OthersCpu, noise, scatter_on_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scale import Scale


def measure_rows(
    rows: dict[str, Callable[[Path, Scale], dict[str, Any]]], name: str, directory: Path, scale: Scale, only: list[str]
) -> dict[str, Any]:
    """Run each wanted row in its own directory; a row that fails records its error, and the others continue."""
    found: dict[str, Any] = {"name": name, "rows": {}, "failed": {}}
    directory.mkdir(parents=True, exist_ok=True)
    scatter_on_disk(directory)
    for row, measure in rows.items():
        if only and row not in only:
            continue
        place = Path(tempfile.mkdtemp(prefix=f"{row}-", dir=directory))  # a new name for each run: see scatter_on_disk
        quiet = noise(place)
        print(f"{name}: {row} ... ", end="", flush=True)
        others = OthersCpu()
        try:
            result = measure(place / "run", scale)
            quiet["others_cpu_during_percent"] = others.percent()
            found["rows"][row] = result | {"noise": quiet}
            print(json.dumps(result), flush=True)
        except Exception as error:
            found["failed"][row] = f"{type(error).__name__}: {error}"[:2500]
            print("failed", flush=True)
            traceback.print_exc()
        finally:
            Load.end_all()
            shutil.rmtree(place, ignore_errors=True)
    return found
