"""Background jobs of a stream, over the calls of Sarit's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.client.core.controller import UnknownCall
from sarit.core.public import public
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.session.session import Session
    from sarit.core.names import StreamName


@public
@dataclass(frozen=True, slots=True)
class JobInfo:
    """A background job of a stream.

    `kind`, `name`: the kind of work, and its name among the stream's jobs of that kind.  `settings`: the choices of its
    creator, in a form of the kind.  `state`: how far it is.  `holder`: the worker that runs it, as HOST:PORT; empty:
    none.  `done`: it is never run again.  `problem`: the error with which its last run ended; empty: there was progress
    since."""

    kind: str
    name: str
    settings: bytes
    state: Mapping[str, str]
    holder: str
    done: bool
    problem: str


async def jobs(session: Session, stream: StreamName) -> list[JobInfo]:
    """Return all jobs of a stream; none from a server that has no such call.  Raises NotFound."""
    controller = session.controller
    request = pb.ListJobsRequest(scope=stream.scope, stream=stream.stream)
    try:
        reply = await session.with_retry(lambda: controller.named(stream, controller.sarit_stub.listJobs, request))
    except UnknownCall:
        return []
    return [
        JobInfo(job.kind, job.name, job.settings, dict(sorted(job.state.items())), job.holder, job.done, job.problem)
        for job in reply.jobs
    ]


async def create(session: Session, stream: StreamName, kind: str, settings: bytes, name: str) -> bool:
    """Create a job.  Returns whether there was none of this kind and name.  Raises NotFound, Invalid."""
    controller = session.controller
    request = pb.CreateJobRequest(scope=stream.scope, stream=stream.stream, kind=kind, name=name, settings=settings)
    reply = await session.with_retry(lambda: controller.named(stream, controller.sarit_stub.createJob, request))
    created: bool = reply.created
    return created


async def delete(session: Session, stream: StreamName, kind: str, name: str) -> None:
    """Delete a job.  Raises NotFound (the job, or the stream)."""
    controller = session.controller
    request = pb.DeleteJobRequest(scope=stream.scope, stream=stream.stream, kind=kind, name=name)

    async def call() -> None:
        await controller.call(controller.sarit_stub.deleteJob, request)

    await session.with_retry_of_deletion(call)
