"""Transactions on a node that is killed and restarted: each is read whole or not at all, as reported to its writer."""

import threading

import sarit
from tests.nodes import RunningNode

TRANSACTIONS = 60
EVENTS = 40


def restartable(directory) -> RunningNode:
    """A node that comes back on the same ports."""
    node = RunningNode(directory, "--controller-port", "0", "--store-port", "0").start()
    node.stop()
    ports = ["--controller-port", node.controller.rpartition(":")[2], "--store-port", node.store.rpartition(":")[2]]
    return RunningNode(directory, *ports).start()


def test_kills_split_no_transaction_and_undo_no_decision(tmp_path) -> None:
    node = restartable(tmp_path / "node")
    try:
        with sarit.connect(node.controller) as client:
            client.create_scope("s")
            client.create_stream("s/t", segments=2)
            writer = client.transactional_writer("s/t")
            committed: list[int] = []
            aborted: list[int] = []
            half, all_but_few = threading.Event(), threading.Event()

            def work() -> None:
                for number in range(TRANSACTIONS):
                    transaction = writer.begin()
                    for event in range(EVENTS):
                        transaction.write(f"{number}:{event}", key=str(event % 4))
                    if number % 5 == 4:
                        transaction.abort()
                        aborted.append(number)
                    else:
                        transaction.commit(wait=number % 2 == 0)
                        committed.append(number)
                    if number == TRANSACTIONS // 3:
                        half.set()
                    if number == 2 * TRANSACTIONS // 3:
                        all_but_few.set()

            thread = threading.Thread(target=work)
            thread.start()
            for moment in (half, all_but_few):
                assert moment.wait(60)
                node.kill()
                node.start()
            thread.join(60)
            assert (len(committed), len(aborted)) == (48, 12)
            last = writer.begin()
            last.write("last:0")
            last.commit()  # in order: whatever was decided before it can be read now
            found: dict[str, list[int]] = {}
            for event in client.reader("s/t", end="tail"):
                name, _, number = event.decode().partition(":")
                found.setdefault(name, []).append(int(number))
            assert found.pop("last") == [0]
            assert sorted(map(int, found)) == committed
            for events in found.values():
                for key in range(4):
                    assert [n for n in events if n % 4 == key] == list(range(key, EVENTS, 4))
    finally:
        node.stop()
