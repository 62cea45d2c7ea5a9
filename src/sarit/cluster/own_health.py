"""The health and metrics of a cluster process's membership and of its session with ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.admin.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.exposition import Sample
    from sarit.cluster.map_watch import MapWatch
    from sarit.cluster.member import Member
    from sarit.coordination.zookeeper import ZooKeeper
    from sarit.env.ports import Clock


def reasons_of_member(member: Member, zookeeper: ZooKeeper) -> list[Reason]:
    """Return what is wrong with the membership of a store now."""
    reasons = []
    if not zookeeper.connected.is_set():
        runs = member.lease_left() > 0
        text = "no server of ZooKeeper answers: each read waits for a write to the log, and " + (
            "the lease of this store still runs" if runs else "its containers may be another store's by now"
        )
        reasons.append(Reason("zookeeper-away", "cluster", text, ready=runs))
    elif not member.valid():
        reasons.append(Reason("no-lease", "cluster", "this store is not a member of its cluster now"))
    if member.leaves:
        reasons.append(Reason("draining", "cluster", "the cluster moves its containers to other stores", ready=True))
    return reasons


def reasons_of_session(zookeeper: ZooKeeper) -> list[Reason]:
    """Return what is wrong with a controller's session with ZooKeeper.  Without one it serves by the last map read."""
    if zookeeper.connected.is_set():
        return []
    return [Reason("zookeeper-away", "cluster", "no server of ZooKeeper answers", ready=True)]


def map_samples(watch: MapWatch, clock: Clock) -> Iterator[Sample]:
    """Yield the metrics of the container map that a process has read last."""
    record = watch.map
    if record is None:
        return
    yield "sarit_cluster_map_version", (), record.version
    yield "sarit_cluster_map_age_seconds", (), clock.monotonic() - watch.read_at
    yield "sarit_cluster_moving_containers", (), len(record.moving)
    yield "sarit_cluster_stores", (), sum(store.usable for store in record.stores.values())


def member_samples(member: Member, clock: Clock) -> Iterator[Sample]:
    """Yield the metrics of a store's membership, and of the container map."""
    yield from map_samples(member.watch, clock)
    yield "sarit_cluster_lease_left_seconds", (), member.lease_left()
    yield "sarit_cluster_containers_moved_total", (), member.moved_away
    yield "sarit_cluster_containers_fenced_total", (), member.fences
