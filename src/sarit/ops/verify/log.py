"""What of a container's durable log is damaged, and what of that is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Corrupt
from sarit.index import keys
from sarit.log.file_reader import examine_log
from sarit.log.port import LogHistory
from sarit.ops.verify.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.env.ports import Env
    from sarit.ops.verify.contents import Contents

_LOST_FRAMES = (
    "what was acknowledged in these frames and those after them; what the checkpoint covers is in index and chunks"
)
_ACCEPT = (
    "restore index and log of this container from one backup; or go on without what is lost: "
    "`sarit standalone --accept-data-loss`"
)


def history_of(contents: Contents) -> LogHistory:
    """Return the history of the log that the index knows.  Raises Corrupt."""
    log, epoch = contents.meta.get("log"), contents.meta.get("epoch")
    identity, owner = (None, 0) if log is None else keys.parse_log_value(log)
    return LogHistory(identity, max(owner, 0 if epoch is None else keys.parse_attribute_value(epoch)), contents.frame)


def check_log(env: Env, directory: str, contents: Contents) -> Iterator[Finding]:
    """Read all of a log that nobody has opened.  Blocking.  Raises Invalid (another format), OSError."""
    number = contents.container
    if not env.files.exists(directory):
        yield Finding(
            f"the durable log is missing: {directory}", container=number, lost=_LOST_FRAMES,
            advice="is its disk mounted? put it back",
        )  # fmt: skip
        return
    try:
        history = history_of(contents)
    except Corrupt as error:
        yield Finding(f"what the index knows of its log is damaged: {error}", container=number)
        return
    report = examine_log(env.files, directory, number, history)
    if report.problem is not None:
        yield Finding(report.problem, container=number, lost="the container does not open", advice=_ACCEPT)
    for damage in report.damage:
        # What a checkpoint covers is not needed: the node serves, and deletes the file in time.
        yield Finding(
            str(damage), container=number,
            lost=_LOST_FRAMES if damage.needed else "nothing",
            advice=_ACCEPT if damage.needed else "nothing; but the disk begins to fail: replace it",
        )  # fmt: skip
