"""The calls on background jobs of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.jobs import JobKey
from sarit.core.errors import Exists, Invalid
from sarit.core.names import StreamName
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.jobs import Job, JobTable, Kinds


class JobCalls:
    """Calls on jobs.  `kinds`: those that this installation runs; None: it runs none."""

    def __init__(self, catalog: Catalog, jobs: JobTable, kinds: Kinds | None) -> None:
        self._catalog = catalog
        self._jobs = jobs
        self._kinds = kinds

    async def createJob(self, request: pb.CreateJobRequest) -> pb.CreateJobResponse:
        key = JobKey(request.kind, StreamName(request.scope, request.stream), request.name).check()
        if self._kinds is None:
            raise Invalid("this server runs no background jobs: start it with --jobs on")
        self._kinds.check(key, request.settings)
        try:
            await self._jobs.create(key, request.settings)
        except Exists:
            return pb.CreateJobResponse(created=False)
        return pb.CreateJobResponse(created=True)

    async def listJobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        stream = StreamName(request.scope, request.stream)
        await self._catalog.require(stream)
        return pb.ListJobsResponse(jobs=[self._message(job) for job in await self._jobs.list(stream)])

    async def deleteJob(self, request: pb.DeleteJobRequest) -> pb.DeleteJobResponse:
        await self._jobs.delete(JobKey(request.kind, StreamName(request.scope, request.stream), request.name).check())
        return pb.DeleteJobResponse()

    def _message(self, job: Job) -> pb.JobState:
        shown = {} if self._kinds is None else self._kinds.describe(job.key.kind, job.state)
        return pb.JobState(
            kind=job.key.kind, name=job.key.name, settings=job.settings, state=shown, holder=job.holder,
            done=job.done, problem=job.problem,
        )  # fmt: skip
