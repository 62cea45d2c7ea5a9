"""The sink's edge on a real node: a driver or a task dies before and after each of its requests, and the batch is run
again."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from sarit.client.core.values import TransactionStatus
from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.spark.sink import protocol, records
from sarit.spark.sink.access import BatchRequests, Connection, TaskTransactions
from sarit.spark.sink.options import parse_write
from tests.nodes import RunningNode
from tests.spark.sink_files import registered

PARTITIONS = 2
STREAMS = ("s/a", "s/b")


class Dead(Exception):
    """A process died here."""


class DyingRequests(BatchRequests):
    """Dies at one request, before or after it was executed."""

    dies_at = -1
    executed = False

    async def answer(self, request):
        self.dies_at -= 1
        if self.dies_at == -1 and not self.executed:
            raise Dead
        answer = await super().answer(request)
        if self.dies_at == -1:
            raise Dead
        return answer


class Sink:
    """A connection, and the batches of one query."""

    def __init__(self, node, **options):
        self.options = parse_write(
            {"controller": node.controller, "scope": "s", "createStream": "true", "segments": "2", **options}
        )
        self.connection = Connection(self.options.target)
        self.client = self.connection.client
        self.begun = set()

    def close(self):
        self.connection.close()

    def run(self, work):
        return self.connection.run(work)

    def requests(self, query, batch=1, dies_at=-1, executed=False):
        made = DyingRequests(self.client, self.options, query, batch)
        made.dies_at, made.executed = dies_at, executed
        return made

    def task(self, requests, partition, batch=1):
        """One attempt; its transactions, or None when the batch was decided."""
        mine = TaskTransactions(requests, batch, 60.0)
        try:
            if not self.run(mine.start()):
                return None
            for stream in STREAMS:
                events = pa.array([f"{requests._query.hex()}:{batch}:{partition}:{n}" for n in range(3)])
                if not self.run(mine.write(stream, events, None)):
                    return None
            self.run(mine.finish())
            return mine.begun
        finally:
            self.begun.update(mine.begun)

    def prepare(self, query, batch=1):
        """What all tasks have written, and whether some wrote nothing."""
        found = [self.task(self.requests(query, batch), partition, batch) for partition in range(PARTITIONS)]
        return [one for mine in found if mine is not None for one in mine], None in found

    def commit(self, requests, prepared, skipped=False, batch=1):
        return self.run(requests.run(protocol.commit_batch(batch, prepared, skipped=skipped)))

    def write(self, query, batch=1):
        """A whole batch; whether its rows are this run's."""
        prepared, skipped = self.prepare(query, batch)
        return self.commit(self.requests(query, batch), prepared, skipped, batch)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def sink(node):
    with closing(Sink(node)) as made:
        made.run(made.client.create_scope("s"))
        made.run(made.client.delete_scope("s", recursive=True))
        made.run(made.client.create_scope("s"))
        yield made


def expected(query, batch=1):
    return Counter(f"{query.hex()}:{batch}:{p}:{n}" for p in range(PARTITIONS) for n in range(3))


async def _read(client, stream):
    return Counter([event.decode() async for event in client.reader(stream, end="tail")])


def check(sink, wanted):
    """Both streams hold what is wanted, and no transaction is open."""
    for stream in STREAMS:
        assert sink.run(_read(sink.client, stream)) == wanted
    for stream, transaction in sink.begun:
        status = sink.run(sink.client.transactional_writer(stream).status(transaction))
        assert status is not TransactionStatus.OPEN, f"{stream} {transaction} is open"


def requests_of_commit(sink):
    query = b"q" * 16
    prepared, _ = sink.prepare(query)
    counted = sink.requests(query)
    sink.commit(counted, prepared)
    return -1 - counted.dies_at


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_driver_dies_at_each_request_of_its_commit(sink, executed):
    wanted = expected(b"q" * 16)
    requests = requests_of_commit(sink)
    assert requests >= 7
    for dies_at in range(requests):
        query = bytes([dies_at]) * 16
        prepared, _ = sink.prepare(query)
        with pytest.raises(Dead):
            sink.commit(sink.requests(query, dies_at=dies_at, executed=executed), prepared)
        sink.write(query)
        sink.write(query)  # Spark did not hear of it, and runs it once more
        wanted += expected(query)
    check(sink, wanted)


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_driver_that_dies_while_it_commits_leaves_the_rest_to_the_next(sink, executed, monkeypatch):
    """Within the one request that commits all winners."""
    wanted = Counter()
    for committed in range(PARTITIONS * len(STREAMS)):
        query = bytes([committed]) * 16
        prepared, _ = sink.prepare(query)
        requests = sink.requests(query)

        async def some(transactions, requests=requests, committed=committed):
            for one in transactions[:committed]:
                await requests._commit_one(one, wait=executed)
            raise Dead

        monkeypatch.setattr(requests, "_commit", some)
        with pytest.raises(Dead):
            sink.commit(requests, prepared)
        assert sink.write(query) is False
        wanted += expected(query)
    check(sink, wanted)


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_task_dies_at_each_request(sink, executed):
    wanted = Counter()
    unregistered = set()
    sink.run(sink.requests(b"").create_table())
    for dies_at in range(9):
        query = bytes([dies_at]) * 16
        requests = sink.requests(query, dies_at=dies_at, executed=executed)
        with pytest.raises(Dead):
            sink.task(requests, 0)
        table = {one.transaction for one in _registered(sink)}
        unregistered |= set(requests.opened) - table
        assert sink.write(query)
        wanted += expected(query)
    sink.begun -= unregistered
    check(sink, wanted)
    # Begun, but not registered: they end by their short lease.
    assert unregistered


def _registered(sink):
    import sarit

    with sarit.connect(sink.options.target.controller) as client:
        return registered(client, "s/spark-sink")


def test_second_run_writes_nothing_and_failed_attempt_is_aborted(sink):
    query = b"a" * 16
    failed = sink.task(sink.requests(query), 0)
    assert sink.write(query)
    assert not sink.write(query)
    writer = sink.client.transactional_writer("s/a")
    assert sink.run(writer.status(failed[0].id)) in (TransactionStatus.ABORTED, TransactionStatus.ABORTING)
    assert _registered(sink) == []
    check(sink, expected(query))


def test_batch_of_streams_that_were_made_again_is_written_again(sink):
    query = b"a" * 16
    assert sink.write(query)

    def remake(stream):
        sink.run(sink.client.delete_stream(stream, seal=True))
        sink.run(sink.client.create_stream(stream))

    remake("s/a")
    with pytest.raises(Invalid, match="written to s/a, which was deleted and made again since, and to s/b, which was"):
        sink.write(query)
    remake("s/b")
    sink.begun.clear()
    assert sink.write(query)
    assert not sink.write(query)
    check(sink, expected(query))


def test_given_up_batch_is_written_by_the_next_run(sink):
    query = b"a" * 16
    sink.prepare(query)
    requests = sink.requests(query)
    sink.run(requests.run(protocol.abort_batch()))
    assert _registered(sink) == []
    assert sink.write(query)
    sink.run(requests.run(protocol.abort_batch()))  # late: it changes nothing
    check(sink, expected(query))


def test_batch_that_lost_a_transaction_before_the_decision_fails_and_hides_the_rest(sink):
    query = b"a" * 16
    prepared, _ = sink.prepare(query)
    sink.run(sink.client.transactional_writer(prepared[0].stream).abort(prepared[0].id))
    with pytest.raises(Conflict, match="run the batch again"):
        sink.commit(sink.requests(query), prepared)
    assert sink.write(query)
    check(sink, expected(query))


def dead_driver(sink, query):
    """A driver that died right after the record."""
    prepared, _ = sink.prepare(query)
    with pytest.raises(Dead):
        sink.commit(sink.requests(query, dies_at=2, executed=True), prepared)
    return prepared


def test_decided_batch_whose_transactions_all_ended_is_written_again(sink):
    query = b"a" * 16
    for one in dead_driver(sink, query):
        sink.run(sink.client.transactional_writer(one.stream).abort(one.id))
    assert sink.write(query)
    check(sink, expected(query))


def test_decided_batch_that_lost_a_part_is_an_error_that_names_it(sink):
    query = b"a" * 16
    lost = dead_driver(sink, query)[0]
    sink.run(sink.client.transactional_writer(lost.stream).abort(lost.id))
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"batch 1 .*{lost.stream} transaction {lost.id} is aborted"):
            sink.write(query)


@pytest.mark.parametrize("state", [protocol.DONE, protocol.VOID])
def test_record_that_a_person_changed_is_followed(sink, state):
    query = b"a" * 16
    lost = dead_driver(sink, query)
    sink.run(sink.client.transactional_writer("s/a").abort(lost[0].id))
    with pytest.raises(Corrupt):
        sink.write(query)
    record = records.encode_record(protocol.Record(state))
    sink.run(sink.client.table("s/spark-sink").put((query, records.record_key(1)), record))
    assert sink.write(query) is (state == protocol.VOID)


def test_hundreds_of_transactions_are_committed_together(sink):
    query = b"a" * 16
    requests = sink.requests(query)

    async def many():
        await requests.create_table()
        begun = [await requests.run(protocol.open_transaction("s/a")) for _ in range(150)]
        for number, one in enumerate(begun):
            requests.opened[one].write(f"{number}")
            await requests.opened[one].flush()
        return begun

    prepared = sink.run(many())
    assert sink.commit(requests, prepared)
    assert sink.run(_read(sink.client, "s/a")) == Counter(str(number) for number in range(150))


def test_old_batches_are_dropped_and_refused(sink):
    query = b"a" * 16
    for batch in range(141):
        sink.commit(sink.requests(query, batch), [], batch=batch)
    with pytest.raises(Invalid, match="batch 39 is older"):
        sink.task(sink.requests(query, 39), 0, batch=39)
    assert sink.task(sink.requests(query, 40), 0, batch=40) is None
