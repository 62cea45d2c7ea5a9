"""What a reload changes, and what it leaves."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

import pytest
from click.testing import CliRunner

from sarit.cli import configured_commands as configured
from sarit.cli.main import cli
from sarit.controller.times import RetentionTimes, Times
from sarit.core.errors import Invalid
from sarit.process import reload as reload_module
from sarit.process import standalone
from sarit.process.child import LIVE_COMMAND, Parent
from sarit.process.observation.logs import LogSettings
from sarit.process.reload import LIVE_OPTIONS, LiveSettings, ReadOptions, Reload, compare_options, decode_live
from sarit.process.shown_option import ShownOption
from tests.limits import HANG_SECONDS

LIVE = LiveSettings(LogSettings("debug", "json"), Times(retention=RetentionTimes(7.0)), 0)


def options(**values: str) -> list[ShownOption]:
    return [ShownOption(name.replace("_", "-"), value, "f.toml:1") for name, value in values.items()]


@pytest.fixture
def log_settings(monkeypatch):
    """What the log was set to; nothing is set up."""
    found = [LogSettings()]
    monkeypatch.setattr(reload_module, "set_up_logs", found.append)
    monkeypatch.setattr(reload_module, "current_logs", lambda: found[-1])
    return found


def test_changes_are_divided_into_those_that_hold_and_those_that_need_a_restart():
    running = options(log_level="info", memory="1G", scrub="8M")
    found = compare_options(running, options(log_level="debug", memory="2G", scrub="8M"))
    assert str(found) == "changed: log-level info -> debug; needs a restart: memory 1G -> 2G"
    # What needs a restart is said again by the next reload.
    again = compare_options(found.options, options(log_level="debug", memory="2G", scrub="8M"))
    assert str(again) == "needs a restart: memory 1G -> 2G"
    assert str(compare_options(running, running)) == "nothing has changed"


def test_live_options_are_declared():
    declared = {
        configured.key_of(option) for option in configured.settable(configured.configured_commands()["standalone"])
    }
    assert declared >= LIVE_OPTIONS


def test_file_that_is_wrong_changes_nothing_and_is_named(caplog, log_settings):
    def read():
        raise Invalid("f.toml:3: memory: '4X' is not a size")

    applied = []
    reload = Reload(options(memory="1G"), read)
    reload.use(applied.append)
    reload.reload()
    assert not applied
    assert log_settings == [LogSettings()]
    assert caplog.messages == [
        "the options are not reloaded, and the old ones hold: f.toml:3: memory: '4X' is not a size"
    ]


def test_new_settings_are_applied_and_reported_in_one_line(caplog, log_settings):
    reload = Reload(options(log_level="info"), lambda: ReadOptions(tuple(options(log_level="debug")), LIVE))
    applied = []
    reload.use(applied.append)
    reload.reload()
    assert applied == [LIVE]
    assert log_settings[-1] == LIVE.log
    assert caplog.messages == ["the options are reloaded: changed: log-level info -> debug"]
    reload.reload()
    assert caplog.messages[-1] == "the options are reloaded: nothing has changed"


def test_line_is_logged_before_the_log_becomes_quieter(monkeypatch, log_settings):
    order = []
    monkeypatch.setattr(reload_module, "take_logs", lambda settings: order.append("logs"))
    monkeypatch.setattr(logging.getLogger("sarit.process"), "warning", lambda *_: order.append("line"))
    for level, expected in (("error", ["line", "logs"]), ("debug", ["logs", "line"])):
        live = LiveSettings(LogSettings(level), Times())
        Reload((), lambda live=live: ReadOptions((), live)).reload()
        assert order == expected
        order.clear()


def test_hangup_reloads(log_settings):
    async def main():
        read = asyncio.Event()

        def note():
            read.set()
            raise Invalid("no")

        Reload((), note).listen()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(read.wait(), HANG_SECONDS)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)

    asyncio.run(main())


def test_child_takes_over_what_its_parent_sends(monkeypatch, log_settings):
    async def main():
        commands, speak = os.pipe()
        found: asyncio.Future[LiveSettings] = asyncio.get_running_loop().create_future()
        parent = Parent(commands, 2)
        parent.follow(found.set_result)
        ended = threading.Event()
        monkeypatch.setattr(os, "_exit", lambda code: ended.set())  # when the pipe ends
        parent.listen()
        os.write(speak, LIVE_COMMAND + LIVE.encode() + b"\nserve\n")
        assert await asyncio.wait_for(found, HANG_SECONDS) == LIVE
        await asyncio.wait_for(parent.serve.wait(), HANG_SECONDS)
        os.close(speak)
        assert ended.wait(HANG_SECONDS)

    asyncio.run(main())
    assert log_settings[-1] == LIVE.log
    assert decode_live(LIVE.encode()) == LIVE


def test_command_line_reads_its_file_again(monkeypatch, tmp_path):
    path = tmp_path / "sarit.toml"
    path.write_text('log-level = "warning"\nretention-interval = 5\n')
    seen = []

    def run(config, reload):
        seen.append(reload._read())
        path.write_text('log-level = "debug"\nretention-interval = 6\nscrub = 0\nmemory = "1G"\n')
        seen.append(reload._read())
        seen.append(compare_options(reload.options, seen[1].options))
        path.write_text("memory = 'x'\nprocesses = 0\n")
        with pytest.raises(Invalid, match=r"sarit.toml:1: memory: 'x' is not a size.*; .*sarit.toml:2: processes: '0'"):
            reload._read()
        path.write_text("one-port = true\nprocesses = 2\n")
        with pytest.raises(Invalid, match=r"--one-port: .*sarit.toml:1, --processes: .*sarit.toml:2"):
            reload._read()
        path.unlink()
        with pytest.raises(Invalid, match="does not exist"):
            reload._read()

    monkeypatch.setattr(standalone, "run", run)
    done = CliRunner().invoke(cli, ["standalone", "--config", str(path), "--store-port", "7"])
    assert done.exit_code == 0, repr(done.exception)
    first, second, changes = seen
    assert first.live == LiveSettings(LogSettings("warning"), Times(retention=RetentionTimes(5.0)), 8 << 20)
    assert (second.live.log.level, second.live.times.retention.interval) == ("debug", 6.0)
    assert second.live.scrub_bytes_per_second == 0
    assert str(changes) == (
        "changed: scrub 8M -> 0, retention-interval 5 -> 6, log-level warning -> debug; "
        "needs a restart: memory (a quarter of the machine's, at most 2G) -> 1G"
    )
