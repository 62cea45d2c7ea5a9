"""The controller as one object: its workflows, its background work and its gRPC service."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sarit.controller.assignment import Assignment
from sarit.controller.background.autoscale import AutoScale
from sarit.controller.background.maintenance import MaintenanceLoop
from sarit.controller.background.recovery_sweeper import RecoverySweeper
from sarit.controller.background.retention import Retention
from sarit.controller.background.timeline import Timeline
from sarit.controller.background.watermarks import Watermarks
from sarit.controller.calls.access import AccessCalls
from sarit.controller.calls.cuts import CutCalls
from sarit.controller.calls.groups import GroupCalls
from sarit.controller.calls.identity import IdentityCalls
from sarit.controller.calls.inspection import InspectionCalls
from sarit.controller.calls.jobs import JobCalls
from sarit.controller.calls.links import LinkCalls
from sarit.controller.calls.properties import PropertyCalls
from sarit.controller.calls.quotas import QuotaCalls
from sarit.controller.calls.scopes import ScopeCalls
from sarit.controller.calls.streams import SegmentCalls, StreamCalls
from sarit.controller.calls.tables import TableCalls
from sarit.controller.calls.transactions import TransactionCalls
from sarit.controller.catalog import Catalog
from sarit.controller.groups import Groups
from sarit.controller.growth import Growth
from sarit.controller.jobs import JobTable
from sarit.controller.key_value_tables import KeyValueTables
from sarit.controller.quotas import QuotaTable
from sarit.controller.rules import RuleTable
from sarit.controller.runner import EffectRunner
from sarit.controller.scopes import Scopes
from sarit.controller.service import handlers
from sarit.controller.steady_clock import SteadyClock
from sarit.controller.streams import Streams
from sarit.controller.times import Times
from sarit.controller.transactions.transactions import Transactions
from sarit.controller.writers import Writers
from sarit.core.errors import Corrupt, Exists
from sarit.core.names import SYSTEM_SCOPE
from sarit.env.background import Background
from sarit.rpc.methods import PRAVEGA, SARIT
from sarit.rpc.mirror_methods import MIRROR, WIDE
from sarit.rpc.request_limiter import RequestLimiter
from sarit.rpc.search_methods import SEARCH
from sarit.rpc.statistics import CallStatistics
from sarit.security.permissions import Permission

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sarit.controller.access import Access
    from sarit.controller.assignment import Address
    from sarit.controller.calls.links import Links
    from sarit.controller.jobs import Kinds
    from sarit.controller.ports import Segments, Tables
    from sarit.controller.statistics import ControllerStatistics
    from sarit.core.names import StreamName
    from sarit.env.ports import Env
    from sarit.rpc.handlers import Handler
    from sarit.security.permissions import Caller
    from sarit.security.quotas import Quotas


_log = logging.getLogger("sarit.controller")

DEFAULT_TIMES: Final = Times()


class Controller:
    """A controller.  All its state is in tables, which several controllers may share.

    `advertised`: the host and port of this controller that clients get."""

    def __init__(
        self, tables: Tables, segments: Segments, env: Env, advertised: Address, times: Times = DEFAULT_TIMES,
        members: Callable[[], Sequence[Address]] | None = None, access: Access | None = None,
        use_quotas: Callable[[Quotas], Awaitable[None]] | None = None, kinds: Kinds | None = None,
        finish_round: Callable[[StreamName], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """`members`: returns the known addresses of all controllers on these tables; None: this one is alone.

        `finish_round`: carries out what a link has decided for a mirror (`mirror/round_steps.py`); None: no links.

        `use_quotas`: gives quotas to the stores; None: no quotas are enforced.

        `access`: checks every call; None: everybody may do everything.  `kinds`: of background jobs; None: no job can
        be created."""
        self.access = access
        self._rules = RuleTable(tables, env, access.use) if access is not None else None
        self.advertised = advertised
        self.assignment = assignment = Assignment(lambda: self.advertised, members)
        self.segments = segments
        self.calls = CallStatistics(env.clock.monotonic, env.traces)
        runner = EffectRunner(segments)
        self.catalog = Catalog(tables)
        self.quotas = QuotaTable(tables, self.catalog, segments, env, assignment, use_quotas)
        self.streams = Streams(
            self.catalog, runner, env, self.quotas.admit,
            lambda name, found: self.transactions.workers.drain(name, found),  # transactions are made below
        )  # fmt: skip
        self.groups = Groups(self.catalog, self.streams, env)
        self.jobs = JobTable(self.catalog)
        self._kinds = kinds
        self.tables = KeyValueTables(self.catalog, runner, env)
        self.scopes = Scopes(self.catalog, self.streams, self.groups, self.tables, env)
        clock = SteadyClock(env.clock)
        self.transactions = Transactions(self.catalog, self.streams, runner, env, clock)
        self.writers = Writers(self.catalog, self.streams)
        self.autoscale = AutoScale(self.catalog, self.streams, segments, times.scaling, env, assignment)
        self.retention = Retention(self.catalog, self.streams, segments, clock)
        self.watermarks = Watermarks(self.catalog, self.streams, segments, times.watermarks, env)
        self.maintenance = MaintenanceLoop(
            self.catalog, self.retention, self.watermarks, times.retention, times.watermarks, env, assignment
        )
        self.growth = Growth(segments)
        self.timeline = Timeline(self.catalog, segments, times.timeline_interval, env, assignment, self.growth)
        self.recovery_sweeper = RecoverySweeper(
            self.catalog, self.scopes, self.groups, self.tables, self.streams, self.transactions, env, assignment,
            finish_round,
        )  # fmt: skip
        self._background = Background.critical(_log, "background work of the controller")

    @property
    def statistics(self) -> ControllerStatistics:
        """The counters of the controller."""
        return self.streams.statistics

    def __repr__(self) -> str:
        return f"<Controller at {self.advertised[0]}:{self.advertised[1]}>"

    async def start(self) -> None:
        """Create the controller's tables and the system scope if missing; start the background work.

        Raises Unavailable."""
        await self.catalog.start()
        try:
            await self.scopes.create(SYSTEM_SCOPE)
        except Exists:
            pass
        except Corrupt as error:
            _log.error("the record of scope %s is damaged: %s", SYSTEM_SCOPE, error)
        if self._rules is not None:
            await self._rules.start()
            self._background.spawn(self._rules.run())
        if self.quotas.followed:
            self._background.spawn(self.quotas.run())
        work = (self.recovery_sweeper.run(), self.autoscale.run(), self.maintenance.run(), self.timeline.run())
        for each in work:
            self._background.spawn(each)

    @property
    def makes_jobs(self) -> bool:
        """Whether background jobs can be created."""
        return self._kinds is not None

    def may_change(self, caller: Caller, *resources: str) -> bool:
        """Return whether the rules let a caller change one of these resources; without rules everybody may."""
        rules = None if self.access is None else self.access.rules
        return rules is None or any(rules.of(caller, resource) is Permission.READ_UPDATE for resource in resources)

    def change_times(self, times: Times) -> None:
        """Apply other intervals of scaling by rate, retention and watermarks."""
        self.autoscale.times = times.scaling
        self.watermarks.times = times.watermarks
        self.maintenance.change_times(times.retention, times.watermarks)

    async def stop(self) -> None:
        """Stop the background work.  Whichever controller runs next completes what is unfinished."""
        await self._background.close()
        # Stop transactions after the recovery sweeper, which schedules their completion.
        await self.transactions.stop()

    def services(
        self, mirror: object | None = None, links: Callable[[], Links] | None = None, search: object | None = None
    ) -> dict[str, Handler]:
        """Return the handlers of the controller's calls, by path.

        `mirror`: serves the calls of other installations for links; `links`: returns what serves those of
        administrators; `search`: serves searches and continuous queries; None: there are none."""
        groups = GroupCalls(self.groups)
        families = (
            ScopeCalls(self.catalog, self.scopes, self.assignment.members),
            StreamCalls(self.catalog, self.streams),
            SegmentCalls(self.streams, self.segments),
            TransactionCalls(self.catalog, self.transactions, self.writers),
            groups,
            TableCalls(self.catalog, self.tables),
        )
        # Both services share one limiter: it bounds the calls in progress of a caller for the whole controller.
        limiter = RequestLimiter(statistics=self.calls)
        own = (
            CutCalls(self.timeline),
            InspectionCalls(self.catalog),
            AccessCalls(self._rules),
            QuotaCalls(self.quotas),
            IdentityCalls(self.catalog),
            groups,
            PropertyCalls(self.catalog),
            JobCalls(self.catalog, self.jobs, self._kinds),
            LinkCalls(links),
        )
        found = handlers(PRAVEGA, families, limiter, self.access) | handlers(SARIT, own, limiter, self.access)
        if mirror is not None:
            found |= handlers(MIRROR, [mirror], limiter, self.access, WIDE)
        return found if search is None else found | handlers(SEARCH, [search], limiter, self.access)
