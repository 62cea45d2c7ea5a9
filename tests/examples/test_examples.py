"""The small programs of examples/, run against real nodes."""

from __future__ import annotations

import base64
import json
import threading

import pytest

import sarit
from examples.dead_letters import letters
from examples.iot_scaling import sensors
from examples.replay import replay
from examples.video_bytes import video
from tests.examples.fast_node import fast_node
from tests.nodes import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("examples") / "node") as running:
        yield running


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as client:
        yield client


def test_video_is_played_while_it_is_recorded(client, capsys) -> None:
    video.run(client, "studio/camera", megabytes=24)
    assert capsys.readouterr().out.splitlines() == [
        "384 frames played while they were recorded",
        "the first 192 frames are gone",
    ]


def test_player_ends_when_camera_fails(client, capsys) -> None:
    client.create_scope("studio")
    client.create_stream("studio/broken")
    client.seal_stream("studio/broken")
    with pytest.raises(sarit.Sealed):
        video.run(client, "studio/broken", megabytes=1)
    assert capsys.readouterr().out == ""


def test_restarted_version_writes_nothing_twice(client) -> None:
    client.create_scope("site")
    client.create_stream("site/calls")
    with client.writer("site/calls") as writer:
        writer.write_many([f"page{n % 5},{n}" for n in range(50)], keys=[f"page{n % 5}" for n in range(50)])
    client.seal_stream("site/calls")
    outputs = []
    for _ in range(2):
        replay.run(client, "site/calls", 2, lambda: None)
        outputs.append(list(client.reader(replay.output_of("site/calls", 2), end="tail")))
    assert len(outputs[0]) == 50
    assert outputs[1] == outputs[0]


def test_new_version_reads_history_and_continues_live(client) -> None:
    client.create_scope("site")
    client.create_stream("site/visits", segments=2)
    pages = [f"page{n % 5}" for n in range(3000)]
    live = threading.Event()
    with client.writer("site/visits") as writer:
        old = threading.Thread(target=replay.run, args=(client, "site/visits", 1, lambda: None))
        old.start()
        for number, page in enumerate(pages[:2000]):
            writer.write(f"{page},{number}", key=page)
        writer.flush()
        new = threading.Thread(target=replay.run, args=(client, "site/visits", 2, live.set))
        new.start()
        assert live.wait(30)
        for number, page in enumerate(pages[2000:], 2000):
            writer.write(f"{page},{number}", key=page)
    client.seal_stream("site/visits")
    old.join(30)
    new.join(30)
    last = {}
    for version in (1, 2):
        figures = list(map(json.loads, client.reader(replay.output_of("site/visits", version), end="tail")))
        assert len(figures) == 3000
        last[version] = {row["page"]: row for row in figures}
    assert {page: row["visits"] for page, row in last[1].items()} == dict.fromkeys(sorted(set(pages)), 600)
    assert {page: (row["visits"], row["mean"]) for page, row in last[2].items()} == {
        f"page{k}": (600, sum(range(k, 3000, 5)) / 600) for k in range(5)
    }


def test_dead_letters_do_not_stop_others_and_are_not_lost(client) -> None:
    client.create_scope("shop")
    client.create_stream("shop/payments", segments=2)
    with client.writer("shop/payments") as writer:
        for number in range(2000):
            amount = "nonsense" if number % 500 == 7 else -1 if number % 500 == 8 else number
            writer.write(f"account{number % 9},{amount}", key=f"account{number % 9}")
    client.seal_stream("shop/payments")
    paid: list[bytes] = []

    def handle(event: bytes) -> None:
        letters.pay(event)
        paid.append(event)

    positions = ["head"]
    assert letters.process(client, "shop/payments", handle, "head", positions.append) == 8
    assert len(paid) == 1992
    again = letters.process(client, "shop/payments", handle, positions[len(positions) // 2 - 1], lambda _: None)
    assert len(letters.letters(client, "shop/payments")) == 8, "a repeated run makes no new letters"
    assert again <= 8
    assert letters.again(client, "shop/payments", handle) == 8
    assert letters.again(client, "shop/payments", paid.append) == 0
    assert letters.letters(client, "shop/payments") == []


def test_dead_letter_that_succeeds_is_not_processed_again(client) -> None:
    client.create_scope("shop")
    client.create_stream("shop/refunds")
    with client.writer("shop/refunds") as writer:
        writer.write_many([f"account{n},nonsense" for n in range(10)])
    client.seal_stream("shop/refunds")
    assert letters.process(client, "shop/refunds", letters.pay, "head", lambda _: None) == 10
    worked: list[bytes] = []

    def handle(event: bytes) -> None:
        if event < b"account4" or len(worked) > 5:
            raise ValueError("not yet")
        worked.append(event)
        if len(worked) == 3:  # meanwhile the first program finds another
            with client.writer(letters.dead_letters_of("shop/refunds")) as writer:
                letter = {"event": base64.b64encode(b"account9,late").decode(), "error": "", "segment": 0, "offset": -1}
                writer.write(json.dumps(letter))

    assert letters.again(client, "shop/refunds", handle) == 4
    assert worked == [b"account%d,nonsense" % n for n in range(4, 10)]
    worked.clear()
    assert letters.again(client, "shop/refunds", handle) == 4
    assert worked == [b"account9,late"], "those that worked are not tried again, the one that came late is not lost"
    assert letters.again(client, "shop/refunds", worked.append) == 0
    assert worked == [b"account9,late", *(b"account%d,nonsense" % n for n in range(4))]
    assert letters.again(client, "shop/refunds", worked.append) == 0
    assert len(worked) == 5


@pytest.mark.parametrize(
    ("foreign", "message"), [("sensor0,5", "reading 5 follows 0"), ("ghost,1", "not every reading")]
)
def test_wrong_readings_are_reported(node, client, monkeypatch, capsys, foreign, message) -> None:
    stream = f"factory/{foreign.partition(',')[0]}"
    sensors.create(client, stream, 1000)
    with client.writer(stream) as writer:
        writer.write(foreign, key="sensor0")
    monkeypatch.setattr(
        "sys.argv", ["sensors.py", "--controller", node.controller, "--per-segment", "1000", "--seconds", "0.3", stream]
    )
    with pytest.raises(SystemExit, match=message):
        sensors.main()
    assert "in order" not in capsys.readouterr().out


def test_stream_of_sensors_scales_up_and_down(tmp_path) -> None:
    with fast_node(tmp_path / "node", 400) as address, sarit.connect(address) as client:
        sensors.create(client, "factory/sensors", 200)
        stream = client.stream("factory/sensors")
        seen: dict[str, int] = {}
        watching = threading.Thread(target=lambda: seen.update(sensors.watch(client, "factory/sensors")))
        watching.start()
        day = sensors.Shift(60, 30, over=lambda: len(stream.segments()) >= 4)
        night = sensors.Shift(5, 1, over=lambda: len(stream.segments()) == 1)
        written = sensors.measure(client, "factory/sensors", [day, night])
        client.seal_stream("factory/sensors")
        watching.join(30)
        assert seen == written
        assert len(stream.epochs()) >= 5
