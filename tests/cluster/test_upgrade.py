"""Another version of Sarit takes over: a cluster, process by process under load, and the directory of a node."""

import shutil
import subprocess

import pytest

import sarit
from tests.cluster.processes import RunningCluster
from tests.cluster.upgrade import COMMITS_AGO, run
from tests.cluster.versions import VersionMissing, commits_ago, program_of
from tests.nodes import SARIT, RunningNode

pytestmark = pytest.mark.long

EVENTS = 500
KEYS = 5


@pytest.fixture(scope="module")
def older():
    """The command `sarit` of an earlier version."""
    try:
        return program_of(commits_ago(COMMITS_AGO))
    except VersionMissing as error:
        pytest.skip(f"no earlier version here: {error}")


def test_cluster_changes_its_version_and_back_under_load(tmp_path, older):
    (tmp_path / "clients").mkdir()
    with RunningCluster(tmp_path / "cluster", containers=8, program=older) as cluster:
        clients = run(cluster, older, tmp_path / "clients", print)
        assert not [(client.name, error) for client in clients for error in client.errors]
        assert all(client.acknowledged and client.calls for client in clients)
        assert "Traceback" not in cluster.log()


def write(controller, life):
    """Events, a transaction, an entry of a table, and a scale; a group reads half of the events."""
    with sarit.connect(controller) as client:
        if life == 0:
            client.create_scope("shop")
            client.create_stream("shop/orders", segments=2)
            client.tables.create("shop/stock", primary_key_bytes=8, partitions=2)
            client.reader_groups.create("shop/billing", "shop/orders")
        with client.writer("shop/orders") as writer:
            for number in range(EVENTS):
                writer.write(f"{life}:{number}", key=str(number % KEYS))
        with client.transactional_writer("shop/orders") as writer, writer.begin() as transaction:
            transaction.write(f"{life}:{EVENTS}", key=str(EVENTS % KEYS))
        client.stream("shop/orders").scale(3 + life)
        client.table("shop/stock").put(f"life {life:3}", f"{life}")


def read_in_group(controller, most):
    """Up to so many events that the group has not read."""
    found = []
    with sarit.connect(controller) as client:
        reader = client.reader_groups.open("shop/billing").reader("one")
        while len(found) < most:
            event = reader.read(timeout=20)
            if event is None:
                break
            if isinstance(event, sarit.GroupEvent):
                found.append(event.event.decode())
        reader.close()
    return found


def check(controller, lives):
    """All that was written in so many lives is there once, and in order by key."""
    with sarit.connect(controller) as client:
        found = [event.decode() for event in client.reader("shop/orders", end="tail")]
        for key in range(KEYS):
            wanted = [
                f"{life}:{number}" for life in range(lives) for number in range(EVENTS + 1) if number % KEYS == key
            ]
            assert [each for each in found if int(each.partition(":")[2]) % KEYS == key] == wanted
        for life in range(lives):
            entry = client.table("shop/stock").get(f"life {life:3}")
            assert entry is not None
            assert entry.value == b"%d" % life
    return found


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_node_serves_the_directory_of_another_version_and_gives_it_back(tmp_path, older, end):
    seen = []
    programs = (older, SARIT, older, SARIT)
    for life, program in enumerate(programs):
        node = RunningNode(tmp_path / "data", sarit=(program,)).start()
        try:
            write(node.controller, life)
            check(node.controller, life + 1)
            seen += read_in_group(node.controller, EVENTS // 2)
        finally:
            getattr(node, end)()
        assert "Traceback" not in node.log()
    with RunningNode(tmp_path / "data") as node:
        written = check(node.controller, len(programs))
        seen += read_in_group(node.controller, len(written) - len(seen))
        assert sorted(seen) == sorted(written)
    done = subprocess.run([SARIT, "verify", str(tmp_path / "data")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tmp_path / "data")
