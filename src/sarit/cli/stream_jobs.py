"""`sarit stream jobs`: the background jobs of a stream."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

import sarit
from sarit.cli.names import STREAM
from sarit.cli.options import controller_option, format_option, show, show_rows

if TYPE_CHECKING:
    from sarit import JobInfo
    from sarit.core.names import StreamName

_SHOWN_CHARACTERS = 40  # of a text of the state; JSON has all
COLUMNS = ["kind", "name", "state", "worker", "progress", "problem"]


@click.command()
@click.argument("name", type=STREAM)
@click.option("--delete", metavar="KIND/NAME", help="End this job; what it has made elsewhere stays.")
@controller_option
@format_option
def jobs(name: StreamName, delete: str | None, controller: str, output: str) -> None:
    """List the background jobs of SCOPE/STREAM: how far they are, who runs them, and what went wrong last."""
    with sarit.connect(controller) as client:
        if delete is not None:
            kind, _, job = delete.partition("/")
            client.stream(name).delete_job(kind, job)
            show(output, {"stream": str(name), "deleted": delete}, f"job {delete} of {name} is deleted")
            return
        found = client.stream(name).jobs()
    if output == "json":
        rows = [asdict(job) | {"settings": job.settings.decode(errors="replace")} for job in found]
        show_rows(output, rows, [])
        return
    show_rows(output, [_row(job) for job in found], COLUMNS)


def _row(job: JobInfo) -> dict[str, object]:
    progress = ", ".join(f"{name} {value}" for name, value in job.state.items() if len(value) <= _SHOWN_CHARACTERS)
    return {
        "kind": job.kind, "name": job.name, "state": state_of(job), "worker": job.holder or "-",
        "progress": progress or "-", "problem": job.problem or "-",
    }  # fmt: skip


def state_of(job: JobInfo) -> str:
    """Return the state of a job in a word."""
    if job.done:
        return "done"
    if job.problem:
        return "failing"
    return "running" if job.holder else "waiting"
