"""The options that a seed draws: small sizes, so that everything happens within seconds, and the enabled faults.

Each fault class is off in half of the seeds: a run with only one class finds bugs that a mix hides.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes
from sarit.store.container.container import ContainerLimits
from sarit.store.store import StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits

KIB = 1024
SLOW_FLUSH_SECONDS: Final = 0.2
LATE_WRITES_SECONDS: Final = 5.0
RETENTION_SECONDS: Final = 0.2
SCRUB_SECONDS: Final = 0.5
WATERMARK_SECONDS: Final = 0.2
# Writers that note no time for so long are ignored by watermarks, in half of the seeds.
WRITER_SECONDS: Final = 2.0
TIMELINE_SECONDS: Final = 2.0
NEVER_SECONDS: Final = 10_000.0
_OWNERSHIP_ALONE: Final = 0.4
_ON_BOOKIES: Final = 0.5
_LOG_ALONE: Final = 0.8
_BACKED_UP: Final = 0.3
_TABLED: Final = 0.25
_RECREATED: Final = 0.3
_MIRRORED: Final = 0.15
_SEARCHED: Final = 0.15
_CONTINUOUS: Final = 0.12
_CONTINUOUS_ALONE: Final = 0.6
_MIXED_VERSIONS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one run: bytes, virtual seconds, probabilities."""

    seed: int
    permuted: float
    containers: int
    segments: int
    writers: int
    readers: int
    table_clients: int
    stream_writers: int
    events: int
    event_bytes: int
    block_events: int
    window_blocks: int
    think_seconds: float
    table_updates: int
    log_file_bytes: int
    flush_interval: float
    flush_trigger_bytes: int
    chunk_bytes: int
    inline_below_bytes: int
    small_extent_bytes: int
    checksum_block_bytes: int
    boundary_step_bytes: int
    large_events: int
    scrub_bytes_per_second: int
    max_dirty_bytes: int
    cache_bytes: int
    chunk_cache_bytes: int
    max_segments: int
    recovery_window_bytes: int
    segments_per_turn: int
    metadata_bytes: int
    compaction_extents: int
    missing_pieces: bool
    covered_rot: bool
    entry_cache_bytes: int
    storage: str
    least_delay: float
    mean_delay: float
    split: float
    disk_latency: float
    storage_latency: float
    fault_interval: float
    kills: bool
    power_cuts: bool
    breaks: bool
    stalls: bool
    storage_refusals: float
    storage_outages: bool
    index_failures: bool
    sync_errors: bool
    write_errors: bool
    full_disk: bool
    truncations: bool
    client_crashes: bool
    register_clients: int
    transaction_writers: int
    transactions: int
    crash_points: float
    clock_jumps: bool
    stream_transactions: int
    scaling_rate: int
    retention: str
    event_time_writers: int
    writers_expire: bool
    synchronizer_users: int
    table_users: int
    packs: bool
    byte_streams: bool
    group_readers: int
    # Stores with one set of logs; 0: one node.
    stores: int = 0
    controllers: int = 0
    lease_seconds: float = 6.0
    moves: bool = False
    revocations: bool = False
    cut_offs: bool = False
    coordination_faults: float = 0.0
    lost_watches: float = 0.0
    freezes: bool = False
    slow_controllers: bool = False
    # The share of requests that go to the store that had the container before the last move, or will have it.
    old_reads: float = 0.0
    old_changes: float = 0.0
    early_requests: float = 0.0
    quotas: bool = False
    backups: bool = False
    # A scope, a stream and a table are deleted and made again.
    recreations: bool = False
    # Users of the schema registry.
    schema_users: int = 0
    # A stream that background jobs commit into a table.
    table_jobs: bool = False
    # Users of background jobs, which controllers run then.
    job_users: int = 0
    # Users of shared data structures.
    structure_users: int = 0
    # A second installation has a mirror of a stream.
    mirrored: bool = False
    # A stream that background jobs index for search.
    searched: bool = False
    # A stream with continuous queries.
    continuous: bool = False
    earlier_versions: bool = False
    # Of several stores, their log on so many bookies, and coordination by ZooKeeper; 0: both are shared parts.
    bookies: int = 0
    entry_bytes: int = 0
    ledger_bytes: int = 0
    ledger_seconds: float = 0.0
    # The share of the pauses that protect a ledger, see `shorter_pauses`.
    pauses: float = 1.0
    bookie_faults: bool = False
    two_bookies: bool = False
    zookeeper_faults: bool = False
    cuts: bool = False
    minutes: bool = False
    strikes: bool = False

    def times(self) -> Times:
        """Intervals of the controller's background work, shortened where a seed uses it."""
        times = Times(timeline_interval=TIMELINE_SECONDS)
        if self.scaling_rate:
            times = replace(times, scaling=ScalingTimes((0.2, 0.5, 1.0, 2.0), 0.1, 0.5, 0.5))
        if self.retention:
            times = replace(times, retention=RetentionTimes(RETENTION_SECONDS))
        if self.event_time_writers:
            time_out = WRITER_SECONDS if self.writers_expire else NEVER_SECONDS
            times = replace(times, watermarks=WatermarkTimes(WATERMARK_SECONDS, time_out))
        return times

    def limits(self) -> StoreLimits:
        """The node's limits."""
        # Where appends are throttled before a flush is due, the flush must come soon.  Small appends are charged
        # several times their bytes.
        slow = self.flush_trigger_bytes * 8 > self.max_dirty_bytes
        return StoreLimits(
            containers=self.containers,
            max_dirty_bytes=self.max_dirty_bytes,
            cache_bytes=self.cache_bytes,
            chunk_cache_bytes=self.chunk_cache_bytes,
            disk_reserve_bytes=0,
            late_writes_seconds=LATE_WRITES_SECONDS,
            scrub_bytes_per_second=self.scrub_bytes_per_second,
            scrub_interval_seconds=SCRUB_SECONDS,
            container=ContainerLimits(
                self.max_segments, self.entry_cache_bytes, self.recovery_window_bytes, self.metadata_bytes
            ),
            flush=FlushLimits(
                interval_seconds=min(self.flush_interval, SLOW_FLUSH_SECONDS) if slow else self.flush_interval,
                trigger_bytes=self.flush_trigger_bytes,
                chunk_bytes=self.chunk_bytes,
                inline_below_bytes=self.inline_below_bytes,
                small_extent_bytes=self.small_extent_bytes,
                checksum_block_bytes=self.checksum_block_bytes,
                boundary_step_bytes=self.boundary_step_bytes,
                segments_per_turn=self.segments_per_turn,
                packs=self.packs,
                packed_below_bytes=self.chunk_bytes // 4,
                compaction_interval_seconds=8 * self.flush_interval if self.packs else 0.0,
            ),
        )

    def lines(self) -> list[str]:
        """For people."""
        return [f"{name} = {value}" for name, value in asdict(self).items()]


def _half(rng: random.Random) -> bool:
    return rng.random() < 0.5


def draw(seed: int) -> Options:
    """The options of a seed."""
    drawn = _drawn(seed)
    alone = drawn.continuous and random.Random(f"{seed}/queries alone").random() < _CONTINUOUS_ALONE
    return _continuous_alone(drawn) if alone else drawn


def _drawn(seed: int) -> Options:
    pick, half = (rng := random.Random(f"{seed}/options")).choice, partial(_half, rng)
    return Options(
        seed=seed,
        permuted=pick((0.0, 0.0, 0.1, 1.0)),
        containers=pick((1, 1, 2, 4)),
        segments=pick((1, 2, 4, 6)),
        writers=pick((1, 2, 4, 6)),
        readers=pick((1, 2, 3)),
        table_clients=pick((0, 1, 3)),
        stream_writers=pick((0, 0, 1, 2)),
        events=pick((40, 120, 300)),
        event_bytes=pick((20, 100, 600, 3000)),
        block_events=pick((1, 3, 10)),
        window_blocks=pick((1, 2, 5, 20)),
        think_seconds=pick((0.002, 0.02, 0.1)),
        table_updates=pick((20, 60)),
        log_file_bytes=pick((16 * KIB, 64 * KIB, 1024 * KIB)),
        flush_interval=pick((0.02, 0.2, 1.0)),
        flush_trigger_bytes=pick((2 * KIB, 20 * KIB, 1024 * KIB)),
        chunk_bytes=pick((1 * KIB, 10 * KIB, 100 * KIB)),
        inline_below_bytes=pick((1, 200, 2000)),
        small_extent_bytes=pick((1, 2 * KIB, 20 * KIB)),
        max_dirty_bytes=pick((8 * KIB, 64 * KIB, 16 * 1024 * KIB)),
        cache_bytes=pick((0, 4 * KIB, 1024 * KIB)),
        chunk_cache_bytes=pick((1, 8 * 1024 * KIB)),
        max_segments=pick((2, 4, 100)),
        entry_cache_bytes=pick((1, 1 * KIB, 1024 * KIB)),
        storage=pick(("objects", "objects", "directory")),
        least_delay=pick((0.0, 0.0005, 0.005)),
        mean_delay=pick((0.0002, 0.002, 0.02)),
        split=pick((0.0, 0.1, 0.7)),
        disk_latency=pick((0.0002, 0.002, 0.02)),
        storage_latency=pick((0.001, 0.02, 0.3)),
        fault_interval=pick((0.1, 0.4, 1.5)),
        kills=half(),
        power_cuts=half(),
        breaks=half(),
        stalls=half(),
        storage_refusals=pick((0.0, 0.0, 0.1, 0.3)),
        storage_outages=half(),
        index_failures=half(),
        sync_errors=half(),
        write_errors=half(),
        full_disk=rng.random() < 0.25,
        truncations=half(),
        client_crashes=half(),
        register_clients=pick((0, 0, 2, 3)),
        transaction_writers=pick((0, 0, 1, 2)),
        transactions=pick((5, 15)),
        crash_points=pick((0.0, 0.0, 0.0, 0.02)),
        clock_jumps=half(),
        stream_transactions=pick((0, 1, 2)),
        scaling_rate=pick((0, 0, 0, 30, 150)),
        retention=pick(("", "", "", "", "", "size", "seconds", "forced")),
        event_time_writers=pick((0, 0, 0, 2, 3)),
        writers_expire=half(),
        synchronizer_users=pick((0, 0, 0, 2, 3)),
        table_users=pick((0, 0, 0, 1, 3)),
        byte_streams=rng.random() < 0.25,
        group_readers=pick((0, 0, 0, 1, 2, 3)),
        recovery_window_bytes=pick((1, 1 * KIB, 1024 * KIB)),
        metadata_bytes=pick((1, 10 * KIB, 1024 * KIB)),
        compaction_extents=pick((2, 50)),
        checksum_block_bytes=pick((512, 4 * KIB, 256 * KIB)),
        scrub_bytes_per_second=pick((0, 100 * KIB, 10 * 1024 * KIB)),
        **_last(rng),
        **_beside(seed),
    )


def _beside(seed: int) -> dict[str, Any]:
    """The options that change no other draw."""
    return {
        "backups": random.Random(f"{seed}/backups").random() < _BACKED_UP,
        "recreations": random.Random(f"{seed}/recreations").random() < _RECREATED,
        "schema_users": random.Random(f"{seed}/schemas").choice((0, 0, 0, 1, 3)),
        "table_jobs": random.Random(f"{seed}/tables").random() < _TABLED,
        "job_users": random.Random(f"{seed}/jobs").choice((0, 0, 0, 1, 3)),
        "structure_users": random.Random(f"{seed}/structures").choice((0, 0, 0, 2, 3)),
        "mirrored": random.Random(f"{seed}/mirrors").random() < _MIRRORED,
        "searched": random.Random(f"{seed}/search").random() < _SEARCHED,
        "continuous": random.Random(f"{seed}/registered events").random() < _CONTINUOUS,
    }


def _last(rng: random.Random) -> dict[str, Any]:
    """The options that are drawn last."""
    return {
        "segments_per_turn": rng.choice((1, 2, 32)),
        # Which damage a restart may meet (`restart_faults.py`).
        "missing_pieces": rng.random() < 0.5,
        "covered_rot": rng.random() < 0.5,
        "boundary_step_bytes": rng.choice((64, 1 * KIB, 256 * KIB)),
        "large_events": rng.choice((0, 5, 15)),
        "packs": rng.random() < 0.5,
    }


def options_of(seed: int, stores: int, *, on_bookies: bool = False) -> Options:
    """The options of a seed with so many stores; 0: with one node; -1: with as many as the seed draws.

    `on_bookies`: with its log on BookKeeper, whatever it draws."""
    if not stores:
        return draw(seed)
    count = stores if stores > 0 else random.Random(f"{seed}/stores").choice((1, 2, 2, 3, 3, 5))
    return draw_fleet(seed, count, on_bookies=on_bookies)


def draw_fleet(seed: int, stores: int, *, on_bookies: bool = False) -> Options:
    """The options of a seed with so many stores; see `options_of`."""
    rng = random.Random(f"{seed}/fleet")
    drawn = replace(
        draw(seed),
        stores=stores,
        controllers=rng.choice((1, 1, 2, 3)),
        containers=rng.choice((2, 3, 4, 6)),
        lease_seconds=rng.choice((2.0, 6.0)),
        moves=_half(rng),
        revocations=_half(rng),
        cut_offs=_half(rng),
        coordination_faults=rng.choice((0.0, 0.0, 0.05, 0.3)),
        lost_watches=rng.choice((0.0, 0.0, 0.3, 1.0)),
        freezes=_half(rng),
        slow_controllers=_half(rng),
        old_reads=rng.choice((0.1, 0.6)),
        old_changes=rng.choice((0.0, 0.1)),
        early_requests=rng.choice((0.0, 0.15)),
        earlier_versions=random.Random(f"{seed}/versions").random() < _MIXED_VERSIONS,
        # A store has no disk of its own.
        storage="objects", sync_errors=False, full_disk=False, clock_jumps=False,
        missing_pieces=False, covered_rot=False,
        # Its link is made in the process of one node.
        mirrored=False,
    )  # fmt: skip
    drawn = _ownership_alone(drawn) if rng.random() < _OWNERSHIP_ALONE else drawn
    drawn_so = stores > 1 and random.Random(f"{seed}/services").random() < _ON_BOOKIES
    return _on_bookies(drawn) if on_bookies or drawn_so else drawn


def _ownership_alone(options: Options) -> Options:
    """Containers change hands all the time, between requests that few others disturb.

    Whether two stores answer for one container shows only while nothing is appended there: an append tells the old
    owner."""
    return replace(
        options,
        containers=2, segments=1, writers=1, readers=1, table_clients=3, table_updates=60, register_clients=3,
        events=40, think_seconds=0.3, window_blocks=1, fault_interval=0.1, disk_latency=0.002, mean_delay=0.002,
        least_delay=0.0, moves=True, cut_offs=True, old_reads=0.6, old_changes=0.0, early_requests=0.15,
        transaction_writers=0, truncations=False, crash_points=0.0, large_events=0,
        stream_writers=0, stream_transactions=0, scaling_rate=0, retention="", event_time_writers=0,
        synchronizer_users=0, table_users=0, byte_streams=False, group_readers=0,
        recreations=False, schema_users=0, table_jobs=False, job_users=0, structure_users=0, searched=False,
        continuous=False,
    )  # fmt: skip


def _on_bookies(options: Options) -> Options:
    """The log on BookKeeper, and coordination by ZooKeeper.

    `pauses`: the share of the pauses that protect a ledger from its owner's death: they are longer than a run."""
    rng = random.Random(f"{options.seed}/bookies")
    if rng.random() < _LOG_ALONE:
        options = _log_alone(options)
    return replace(
        options,
        bookies=rng.choice((3, 4, 4, 5)),
        entry_bytes=rng.choice((256, 1 * KIB, 64 * KIB)),
        ledger_bytes=rng.choice((4 * KIB, 8 * KIB, 64 * KIB)),
        ledger_seconds=rng.choice((1.0, 5.0, 3600.0)),
        pauses=rng.choice((1.0, 1 / 30, 1 / 30)),
        bookie_faults=_half(rng),
        two_bookies=rng.random() < 0.3,
        zookeeper_faults=_half(rng),
        cuts=_half(rng),
        minutes=_half(rng),
        strikes=_half(rng),
        # What ZooKeeper gives.
        lease_seconds=rng.choice((4.0, 6.0)),
        coordination_faults=0.0, lost_watches=0.0,
    )  # fmt: skip


def _continuous_alone(options: Options) -> Options:
    """Continuous queries, and little else: their job saves and commits often, and faults hit it rather than others."""
    return replace(
        options,
        segments=1, writers=1, readers=1, table_clients=0, register_clients=0, events=40, event_bytes=100,
        think_seconds=0.1, large_events=0, fault_interval=4.0, log_file_bytes=1024 * KIB,
        storage_latency=min(options.storage_latency, 0.02), max_dirty_bytes=1024 * KIB,
        transaction_writers=0, truncations=False, backups=False,
        stream_writers=0, stream_transactions=0, scaling_rate=0, retention="", event_time_writers=0,
        synchronizer_users=0, table_users=0, byte_streams=False, group_readers=0,
        recreations=False, schema_users=0, table_jobs=False, job_users=0, structure_users=0, searched=False,
        mirrored=False,
    )  # fmt: skip


def _log_alone(options: Options) -> Options:
    """Little but appends and flushes, so that faults of the log and of its owners stand out, and the seed is short."""
    return replace(
        options,
        containers=2, segments=2, writers=2, readers=1, table_clients=1, table_updates=20, register_clients=0,
        events=200, event_bytes=100, think_seconds=0.05, fault_interval=min(options.fault_interval, 0.3),
        transaction_writers=0, truncations=False, large_events=0,
        stream_writers=0, stream_transactions=0, scaling_rate=0, retention="", event_time_writers=0,
        synchronizer_users=0, table_users=0, byte_streams=False, group_readers=0,
        recreations=False, schema_users=0, table_jobs=False, job_users=0, structure_users=0, searched=False,
        continuous=False,
    )  # fmt: skip
