"""`sarit store`, `sarit controller` and `sarit cluster` by their options; what they do is tested in tests/cluster."""

import pytest
from click.testing import CliRunner

from sarit.cli import cluster as cluster_commands
from sarit.cli.main import cli
from sarit.cluster import controller as cluster_controller
from sarit.cluster import store as cluster_store
from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes

URL = "zookeeper://127.0.0.1:1/c"


@pytest.fixture
def run_configs(monkeypatch):
    """The configurations with which processes would run."""
    found = []
    for module, name in ((cluster_store, "run_store"), (cluster_controller, "run_controller")):
        monkeypatch.setattr(module, name, lambda config, reload: found.append(config))
    return found


def test_intervals_are_options_of_controllers_and_stores(run_configs):
    scaling = ["--scaling-windows", "1", "2", "3", "4", "--scaling-cool-down", "5"]
    intervals = ["--retention-interval", "6", "--watermark-interval", "7"]
    for command in (["controller", *scaling, *intervals], ["store", *scaling]):
        done = CliRunner().invoke(cli, [*command, "--cluster", URL])
        assert done.exit_code == 0, done.output
    expected = ScalingTimes((1.0, 2.0, 3.0, 4.0), 1 / 24, 5.0, 5.0)
    controller, store = run_configs
    assert controller.times == Times(expected, RetentionTimes(6.0), WatermarkTimes(7.0))
    assert store.times == Times(expected)


def test_intervals_may_stand_in_the_file_of_options(run_configs, tmp_path):
    (tmp_path / "c.toml").write_text(
        f'cluster = "{URL}"\nscaling_cool_down = 5\nscaling-windows = [1, 2, 3, 4]\n'
        "[controller]\nretention-interval = 6\n"
    )
    for command in ("controller", "store"):
        done = CliRunner().invoke(cli, [command, "--config", str(tmp_path / "c.toml")])
        assert done.exit_code == 0, done.output
    controller, store = run_configs
    assert controller.times.scaling == store.times.scaling == ScalingTimes((1.0, 2.0, 3.0, 4.0), 1 / 24, 5.0, 5.0)
    assert controller.times.retention.interval == 6


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["controller", "--scaling-windows", "4", "3", "2", "1"], "four times in seconds, shortest first"),
        (["controller", "--retention-interval", "0"], "--retention-interval"),
        (["store", "--retention-interval", "1"], "No such option"),
        (["cluster", "status", "--formt"], "--format"),
    ],
)
def test_wrong_option_ends_with_an_error_and_nothing_runs(run_configs, command, message):
    done = CliRunner().invoke(cli, [*command, "--cluster", URL])
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)
    assert not run_configs


def test_interrupted_drain_says_that_the_store_stays_drained(monkeypatch):
    def interrupted(url, work):
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_commands, "_run", interrupted)
    done = CliRunner().invoke(cli, ["cluster", "drain", "s1", "--cluster", URL])
    assert "s1 stays drained, its containers move on: --undo ends that" in done.output
    assert done.exit_code == 1  # click's; the program ends with 130
    done = CliRunner().invoke(cli, ["cluster", "drain", "s1", "--undo", "--cluster", URL])
    assert "stays drained" not in done.output
