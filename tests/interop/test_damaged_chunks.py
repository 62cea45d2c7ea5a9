"""The official Python client, which is the Rust client, on damaged long-term storage: it does not retry for ever."""

from __future__ import annotations

import time

import pytest

from benchmarks.peers.maven import PeerMissing
from tests.faults.damaged_chunks import EVENTS, SCOPE, damage, write_both
from tests.interop.java_peer import JavaReader, compiled
from tests.interop.running import finish, start
from tests.limits import patient
from tests.nodes import RunningNode

JAVA_SECONDS = min(90.0, patient(60.0))  # the program starts in it; a read that it repeats would fail after 100 s


@pytest.fixture(scope="module")
def node(request, tmp_path_factory):
    if request.config.getoption("--interop-endpoint", default=None):
        pytest.skip("the node of --interop-endpoint is not ours to damage")
    data = tmp_path_factory.mktemp("damaged") / "data"
    node = RunningNode(data, "--containers", "1").start()
    try:
        write_both(node)
        assert node.stop() == 0
        damage(data, "flipped")
        with node:
            yield node
    finally:
        node.kill()


@pytest.mark.parametrize("name", ["damage.reader_groups", "damage.byte_stream"])
def test_official_client_fails_at_once_on_that_segment_alone(node, name, tmp_path):
    finish(name, start(name, node.controller, SCOPE, tmp_path))
    assert node.log().count("long-term storage is damaged") == 1
    assert "closed: it" not in node.log(), "no connection was cut"


def test_java_client_raises_our_text_at_once(node, tmp_path):
    try:
        classes = compiled(tmp_path)
    except PeerMissing as missing:
        pytest.skip(str(missing))
    creating = JavaReader(classes, node.controller, SCOPE, "java-group", "damaged", "create")
    creating.wait()
    assert "created" in creating.said
    reader = JavaReader(classes, node.controller, SCOPE, "java-group", "damaged", "read")
    try:
        begun = time.monotonic()
        while not (failed := [line for line in reader.said if line.startswith("failed ")]):
            assert reader.process.poll() is None, reader.said[-3:]
            assert time.monotonic() - begun < JAVA_SECONDS, reader.said[-3:]
            time.sleep(0.1)
        assert "AuthenticationException" in failed[0]
        assert "damaged: segment storage/damaged/0.#epoch.0 cannot be read at offset" in failed[0]
        assert "sarit verify" in failed[0]
        assert 0 < len(reader.events()) <= EVENTS // 2
    finally:
        reader.kill()
    assert "closed: it" not in node.log(), "no connection was cut"
