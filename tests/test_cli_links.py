"""`sarit link`, as a user types it, between two nodes."""

from __future__ import annotations

import json
import time

import sarit as library
from tests.nodes import RunningNode
from tests.test_cli import sarit

PUSH = ("--include", "plant/*")
WAIT_SECONDS = 90


def until(what, seconds=WAIT_SECONDS):
    """Return the first true result of a call."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)
    return found


def shown(node, name="core"):
    return json.loads(sarit(node, "link", "show", name, "--format", "json")[0])


def events(node, stream="plant/temperatures"):
    """Return the events of a stream as a reader gets them, with their number."""
    with library.connect(node.controller) as client:
        return list(client.reader(stream, end="tail"))


def write(node, numbers, stream="plant/temperatures"):
    with library.connect(node.controller) as client, client.writer(stream) as writer:
        for number in numbers:
            writer.write(f"{number}", key="k")


def test_a_link_copies_and_is_promoted_unplanned(tmp_path):
    with RunningNode(tmp_path / "edge") as edge, RunningNode(tmp_path / "core") as core:
        sarit(edge, "stream", "create", "plant/temperatures", "--create-scope")
        write(edge, range(100))
        made = sarit(edge, "link", "create", "core", "--push", core.controller, *PUSH)[0]
        assert made == "link core is active\n"
        assert "give another name" in sarit(edge, "link", "create", "core", "--push", core.controller, code=1)[1]
        until(lambda: shown(edge)["status"]["copied_bytes"])
        until(lambda: shown(edge)["status"]["lag_bytes"] == 0 and shown(edge)["status"]["streams"])
        assert [int(event) for event in events(core)] == list(range(100))
        rows = sarit(edge, "link", "list")[0].splitlines()
        assert rows[0].split()[:4] == ["NAME", "DIRECTION", "PEER", "STATE"]
        assert rows[1].split()[:5] == ["core", "push", core.controller, "active", "yes"]
        assert sarit(core, "link", "list")[0].splitlines()[1].split()[:2] == ["core", "from"]
        assert "mirror of another" in sarit(core, "write", "plant/temperatures", stdin="x\n", code=1)[1]
        assert "mirror    of link core, read-only" in sarit(core, "stream", "info", "plant/temperatures")[0]
        assert json.loads(sarit(edge, "stream", "info", "plant/temperatures", "--format", "json")[0])["mirror"] is None
        wrong = sarit(core, "link", "promote", "core", "--planned", code=1)[1]
        assert "promote unplanned here" in wrong
        assert "give --planned" in sarit(core, "link", "promote", "core", code=2)[1]
        assert "promoted" in sarit(core, "link", "promote", "core", "--unplanned", "--yes")[0]
        write(core, range(100, 110))
        assert [int(event) for event in events(core)] == list(range(110))
        until(lambda: shown(edge)["state"] == "promoted")  # the edge hears of it, and is read-only
        assert "link core is deleted" in sarit(edge, "link", "delete", "core")[0]
        assert "there is no link core" in sarit(edge, "link", "show", "core", code=1)[1]


def test_a_planned_promotion_loses_nothing(tmp_path):
    with RunningNode(tmp_path / "edge") as edge, RunningNode(tmp_path / "core") as core:
        sarit(edge, "stream", "create", "plant/temperatures", "--create-scope")
        write(edge, range(50))
        sarit(edge, "link", "create", "core", "--push", core.controller, *PUSH, "--paused")
        assert sarit(edge, "link", "resume", "core")[0] == "link core is active\n"
        until(lambda: shown(edge)["status"]["copied_bytes"])
        write(edge, range(50, 100))
        done = sarit(edge, "link", "promote", "core", "--planned", "--wait", str(WAIT_SECONDS))[0]
        assert done == "the mirrors of link core are promoted, and its source is read-only\n"
        assert [int(event) for event in events(core)] == list(range(100))
        write(core, range(100, 110))
        assert "is sealed" in sarit(edge, "write", "plant/temperatures", stdin="x\n", code=1)[1]


def test_bad_links_are_refused_by_name(tmp_path):
    with RunningNode(tmp_path / "edge") as edge:

        def refused(*options, code=1):
            return sarit(edge, "link", "create", "core", *options, code=code)[1]

        assert "a link to itself" in refused("--push", edge.controller)
        assert "give --push" in refused(code=2)
        assert "give --push" in refused("--push", "a:1", "--pull", "b:1", code=2)
        assert "HOST:PORT" in refused("--push", "nowhere")
        assert "SCOPE/STREAM" in refused("--push", "a:1", "--include", "plant")
        assert "never the password" in refused("--push", "a:1", "--user", "u", "--password", "secret")
        assert "22:00-06:00" in refused("--push", "a:1", "--window", "10-11")
        assert "GLOB=CLASS" in refused("--push", "a:1", "--priority", "plant/*", code=2)
        assert "give one of these" in refused("--push", "a:1", "--keep-all", "--keep-seconds", "9", code=2)
        away = "link core is active; the peer does not answer yet, and it goes on trying\n"
        assert sarit(edge, "link", "create", "core", "--pull", "127.0.0.1:1")[0] == away
        assert "the same stream" in sarit(edge, "link", "create", "b", "--pull", "127.0.0.1:2", code=1)[1]
        changed = sarit(
            edge,
            "link",
            "change",
            "core",
            "--bytes-per-second",
            "1M",
            "--include",
            "plant/*",
            "--priority",
            "plant/a=9",
        )[0]
        assert "1,048,576 bytes a second" in changed
        assert "plant/a=9" in changed
        assert "name at least one" in sarit(edge, "link", "change", "core", code=2)[1]
        sarit(edge, "link", "create", "b", "--pull", "127.0.0.1:2", "--include", "lab/*", "--keep-seconds", "60")
        assert "mirrors keep  60 s" in sarit(edge, "link", "show", "b")[0]
        assert "there are b, core" in sarit(edge, "link", "show", "coer", code=1)[1]
        assert "stay read-only" in sarit(edge, "link", "delete", "b", code=2)[1]
        assert sarit(edge, "link", "delete", "b", "--yes") == ("link b is deleted\n", "")
        sarit(edge, "link", "create", "b", "--pull", "127.0.0.1:2", "--include", "lab/*", "--hold", "1G", "--paused")
        warning = sarit(edge, "link", "delete", "b", "--yes")[1]
        assert warning.startswith("127.0.0.1:2 may go on holding for link b")
        assert "`sarit link delete` there" in warning
