"""The kinds of background jobs that an installation knows, and what a job gets to work with.

A kind is a line of `KINDS`: its name and its module, which defines

    check(key, settings, config)   raises Invalid: no such job can be created; pure, called by the controller
    runner(world) -> Runner        runs each job of the kind, on the worker that has claimed it
    describe(state) -> dict        the state of a job for people, by name

A module is imported when a job of its kind is first created, listed or run: a process without jobs pays for none.  What
the module in turn needs of an extra, it imports where it runs, behind `sarit.core.extras.require`.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import Invalid, SaritError
from sarit.lake.catalogs import Catalogs, read_catalogs
from sarit.process.limits import (
    JOB_CALL_RETRY_SECONDS,
    MAX_JOB_STATE_TEXT_CHARACTERS,
    MAX_JOB_STATE_TEXTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.admin.exposition import Sample
    from sarit.admin.reasons import Reason
    from sarit.client.aio import Client
    from sarit.controller.jobs import Job, JobKey, Runner, Save
    from sarit.env.ports import Env
    from sarit.mirror.site import MirrorSite
    from sarit.process.registry_schemas import RegistrySchemas
    from sarit.process.search.site import SearchSite
    from sarit.process.security import Security
    from sarit.rpc.handlers import Handler
    from sarit.serializers.schema_source import SchemaSource

_log = logging.getLogger("sarit.process")

# The modules by kind.  Tests add kinds of their own.
KINDS: Final[dict[str, str]] = {
    "continuous": "sarit.process.jobs.continuous",
    "iceberg": "sarit.process.jobs.iceberg",
    "link": "sarit.process.jobs.link",
    "search": "sarit.process.jobs.search",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobConfig:
    """The operator's settings for jobs.

    `catalogs`: Iceberg catalogs by their names.  Their properties include passwords: no text shows them."""

    catalogs: Catalogs = field(default_factory=lambda: Catalogs({}))


class Configured(Protocol):
    """The settings of a process that runs jobs."""

    @property
    def jobs(self) -> bool:
        """Return whether it runs jobs."""

    @property
    def catalogs(self) -> str | None:
        """Return the file with the Iceberg catalogs; None: there are none."""


def job_config(config: Configured) -> JobConfig | None:
    """Return the settings of a process for jobs; None: it runs none.  Raises Invalid: a file cannot be read."""
    return JobConfig(read_catalogs(config.catalogs)) if config.jobs else None


class JobStatistics:
    """The counters of the jobs of one process, by kind."""

    def __init__(self) -> None:
        self.runs = Counter[str]()
        self.failures = Counter[str]()
        self.sources: list[Callable[[], Iterable[Sample]]] = []
        self.reasons: list[Callable[[], Iterable[Reason]]] = []

    def __repr__(self) -> str:
        return f"<JobStatistics, {sum(self.runs.values())} runs, {sum(self.failures.values())} failures>"

    def add(
        self, source: Callable[[], Iterable[Sample]], reasons: Callable[[], Iterable[Reason]] | None = None
    ) -> None:  # fmt: skip
        """Add the metrics of a kind's own; `source` is called at each scrape, `reasons` whenever health is asked."""
        self.sources.append(source)
        if reasons is not None:
            self.reasons.append(reasons)


@dataclass(frozen=True, slots=True)
class JobWorld:
    """The client and the settings that the jobs of a process work with.

    `client`: of this process, which may do everything: a kind checks at creation what its job may touch.  `schemas`:
    those of the installation, for decoders of payloads on worker threads.  `mirror`: returns the parts of links of this
    process; raises Invalid if the installation has no id.  `search`: where indexes are."""

    client: Client
    env: Env
    config: JobConfig
    schemas: SchemaSource
    statistics: JobStatistics
    mirror: Callable[[], MirrorSite]
    search: SearchSite


class Module(Protocol):
    """The module of a kind."""

    def check(self, key: JobKey, settings: bytes, config: JobConfig) -> None:
        """Check that this job with these settings may be created.  Raises Invalid."""

    def runner(self, world: JobWorld) -> Runner:
        """Return what runs the jobs of this kind."""

    def describe(self, state: bytes) -> dict[str, str]:
        """Return the state of a job for people.  Raises Invalid."""


def _module(kind: str) -> Module:
    """Import the module of a kind.  Raises Invalid: there is no such kind, or packages are not installed."""
    if kind not in KINDS:
        known = ", ".join(sorted(KINDS)) or "none"
        raise Invalid(f"no kind of background job is named {kind}: this server knows {known}")
    module: Module = import_module(KINDS[kind])
    return module


class JobKinds:
    """The kinds for a controller (`controller/jobs.py`)."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config

    def __repr__(self) -> str:
        return f"<JobKinds {', '.join(sorted(KINDS))}>"

    def check(self, key: JobKey, settings: bytes) -> None:
        """Check that a job may be created.  Raises Invalid."""
        module = _module(key.kind)
        try:
            module.check(key, settings, self._config)
        except SaritError:
            raise
        except Exception as error:  # answered: a client would repeat the call for minutes
            _log.critical(
                "the settings of a job of kind %s cannot be checked: internal error", key.kind, exc_info=error
            )
            raise Invalid(
                f"the server cannot check the settings of a job of kind {key.kind}: internal error "
                f"{type(error).__name__}, see its log"
            ) from None

    def describe(self, kind: str, state: bytes) -> Mapping[str, str]:
        """Return a job's state for people; empty: of a kind that is not known here, or it cannot be read."""
        if kind not in KINDS or not state:
            return {}
        try:
            found = _module(kind).describe(state)
        except Exception as error:  # the job is listed all the same
            _log.warning("the state of a job of kind %s cannot be shown: %s", kind, error)
            return {}
        texts = list(found.items())[:MAX_JOB_STATE_TEXTS]
        return {name: value[:MAX_JOB_STATE_TEXT_CHARACTERS] for name, value in texts}


class GivenKinds:
    """Kinds whose runners are given, of tests and of the simulation: they take any settings."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self._runners = runners

    def __repr__(self) -> str:
        return f"<GivenKinds {', '.join(sorted(self._runners))}>"

    def check(self, key: JobKey, settings: bytes) -> None:
        """Check that there is a runner of the kind.  Raises Invalid."""
        if key.kind not in self._runners:
            raise Invalid(f"no kind of background job is named {key.kind}")

    def describe(self, kind: str, state: bytes) -> Mapping[str, str]:
        """Return nothing: what a state holds is not known here."""
        return {}


class JobRunners:
    """Runs jobs of all kinds; what they work with is made when the first of them runs."""

    def __init__(
        self, config: JobConfig, env: Env, security: Security, controller: Callable[[], str],
        calls: Mapping[str, Handler],
        schemas: Callable[[], RegistrySchemas], mirror: Callable[[], MirrorSite], search: SearchSite,
    ) -> None:  # fmt: skip
        """`calls`: the handlers of the controller in this process; `controller`: returns its HOST:PORT, for texts.

        `schemas`: makes a reader of the schemas of the installation.  `mirror`, `search`: see `JobWorld`."""
        self._config = config
        self._env = env
        self._security = security
        self._controller = controller
        self._calls = calls
        self._schemas = schemas
        self._mirror = mirror
        self._search = search
        self._opened: RegistrySchemas | None = None
        self._world: JobWorld | None = None
        self._loaded: dict[str, Runner] = {}
        self.statistics = JobStatistics()

    def __repr__(self) -> str:
        return f"<JobRunners, {self.statistics!r}>"

    def by_kind(self) -> dict[str, Runner]:
        """Return the runner of each kind."""
        return {kind: self._runner(kind) for kind in KINDS}

    def _runner(self, kind: str) -> Runner:
        async def run(job: Job, save: Save) -> None:
            await (await self._load(kind))(job, save)

        return run

    async def _load(self, kind: str) -> Runner:
        if kind not in self._loaded:
            # Imported on a thread: a large library takes a second, in which clients are served.
            worker = self._env.threads.worker("job-import")
            try:
                module = await worker.run(lambda: _module(kind))
            finally:
                await worker.close()
            if kind not in self._loaded:
                self._loaded[kind] = module.runner(self._made())
        return self._loaded[kind]

    def _made(self) -> JobWorld:
        if self._world is None:
            from sarit.process.own_client import client_factory, own_credentials

            connect = client_factory(
                self._controller(), self._calls, self._security, lambda: "jobs", JOB_CALL_RETRY_SECONDS
            )
            client = connect(own_credentials(self._security, self._env))
            self._opened = self._schemas()
            self._world = JobWorld(
                client, self._env, self._config, self._opened, self.statistics, self._mirror, self._search
            )
        return self._world

    async def close(self) -> None:
        """Close what the jobs worked with."""
        if self._world is not None:
            await self._world.client.close()
        if self._opened is not None:
            await self._opened.close()
