"""Known vulnerabilities of what is locked, by pip-audit.  None found counts only if it has audited every package.

    python -m tools.vulnerabilities REQUIREMENTS

An empty file, a package that was left out, and a report that is none fail the build, as a vulnerability does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COMMAND: Final = (
    str(Path(sys.executable).with_name("pip-audit")), "--strict", "--require-hashes", "--disable-pip",
    "--progress-spinner", "off", "--format", "json", "--requirement",
)  # fmt: skip


def wanted_packages(requirements: str) -> dict[str, str]:
    """Versions of the packages in a file that `uv export` writes, by name; without those of other platforms."""
    found: dict[str, str] = {}
    for line in requirements.splitlines():
        if not line or line[0] in " #-":  # hashes, comments, options
            continue
        each = Requirement(line.rstrip("\\ "))
        if each.marker is None or each.marker.evaluate():
            (pin,) = each.specifier
            found[canonicalize_name(each.name)] = pin.version
    return found


def problems(report: str, wanted: dict[str, str]) -> list[str]:
    """What is wrong, a line each, from a report in JSON."""
    try:
        entries: list[dict[str, Any]] = json.loads(report)["dependencies"]
        audited: dict[str, dict[str, Any]] = {canonicalize_name(each["name"]): each for each in entries}
    except (ValueError, KeyError, TypeError):
        return ["pip-audit has written no report: nothing was audited"]
    found = [] if wanted else ["no package is locked: nothing was audited"]
    for name, version in sorted(wanted.items()):
        entry = audited.get(name, {})
        if entry.get("version") != version or "vulns" not in entry:
            reason = entry.get("skip_reason", "it is not in the report")
            found.append(f"{name} {version} was not audited: {reason}")
    for name, entry in sorted(audited.items()):
        for known in entry.get("vulns", ()):
            mended = ", ".join(known.get("fix_versions", ())) or "no version"
            found.append(f"{name} {entry['version']} has {known['id']}; mended in {mended}")
    return found


def main(requirements: str, command: tuple[str, ...] = COMMAND) -> int:
    """Audit a file; the exit code."""
    wanted = wanted_packages(Path(requirements).read_text())
    done = subprocess.run([*command, requirements], capture_output=True, text=True, check=False)
    found = problems(done.stdout, wanted)
    if done.returncode and not found:
        found = [f"pip-audit ended with code {done.returncode}"]
    if found:
        sys.stderr.write("\n".join([done.stderr.strip(), *found]).strip() + "\n")
        return 1
    sys.stdout.write(f"{len(wanted)} packages have no known vulnerability\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
