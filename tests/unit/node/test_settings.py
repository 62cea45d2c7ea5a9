"""What an operator chose is what the node does."""

import dataclasses

import pytest
from click.testing import CliRunner

import sarit.node.standalone
from sarit.cli.standalone import standalone
from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes
from sarit.core.errors import Invalid
from sarit.node.settings import NodeConfig
from sarit.store.store import StoreLimits


def test_the_number_of_containers_reaches_the_store():
    assert NodeConfig("data", containers=7).validated().limits.containers == 7


def test_other_store_limits_are_unchanged():
    limits = StoreLimits(cache_bytes=1234)
    got = NodeConfig("data", containers=2, limits=limits).validated().limits
    assert got == dataclasses.replace(limits, containers=2)


@pytest.mark.parametrize(
    "times",
    [
        Times(ScalingTimes((1.0, 2.0, 4.0, 3.0))),
        Times(ScalingTimes((0.0, 1.0, 2.0, 3.0))),
        Times(ScalingTimes(cool_down=-1.0)),
        Times(retention=RetentionTimes(0.0)),
        Times(watermarks=WatermarkTimes(-1.0)),
    ],
)
def test_invalid_intervals_are_refused(times):
    Times().check()
    with pytest.raises(Invalid):
        NodeConfig("data", times=times).validated()


def test_command_line_options_reach_the_node(monkeypatch):
    started = []
    monkeypatch.setattr(sarit.node.standalone, "run", started.append)
    options = ["--scaling-windows", "1", "2", "3", "4", "--scaling-cool-down", "7", "--watermark-interval", "0.5"]
    assert CliRunner().invoke(standalone, options).exit_code == 0
    assert CliRunner().invoke(standalone, []).exit_code == 0
    assert started[0].times.scaling == ScalingTimes((1.0, 2.0, 3.0, 4.0), 1 / 24, 7.0, 7.0)
    assert started[0].times.watermarks.interval == 0.5
    assert started[1].times == Times()


def test_connections_are_as_many_as_open_files_allow():
    config = NodeConfig("data", containers=2)
    assert config.within(1 << 20) == config
    few = config.within(460)
    assert (few.max_connections, few.max_api_connections) == (104, 52)
    both = NodeConfig("data", containers=2, one_port=True).within(460)
    assert both.max_connections + 2 * both.max_api_connections <= 156
    with pytest.raises(Invalid, match="may have 300 open files; a node of 2 containers needs 334"):
        config.within(300)
