"""`sarit link`, as a user types it, between two nodes."""

from __future__ import annotations

from tests.nodes import RunningNode
from tests.test_cli import sarit


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
        sarit(edge, "link", "delete", "b", "--yes")
