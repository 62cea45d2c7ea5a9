"""What an operator chose is what the node does."""

import dataclasses
from dataclasses import replace

import pytest
from click.testing import CliRunner

import sarit.process.standalone
from sarit.cli.standalone import standalone
from sarit.controller.times import RetentionTimes, ScalingTimes, Times, WatermarkTimes
from sarit.core.errors import Invalid
from sarit.core.limits import MIB
from sarit.env.real_limits import cgroup_limit_files, machine_memory
from sarit.process.settings import NodeConfig, choose_memory, divide_memory, min_memory
from sarit.store.limits import INLINE_BELOW_BYTES
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
    monkeypatch.setattr(sarit.process.standalone, "run", lambda config, reload: started.append(config))
    options = ["--scaling-windows", "1", "2", "3", "4", "--scaling-cool-down", "7", "--watermark-interval", "0.5"]
    assert CliRunner().invoke(standalone, options).exit_code == 0
    assert CliRunner().invoke(standalone, []).exit_code == 0
    assert started[0].times.scaling == ScalingTimes((1.0, 2.0, 3.0, 4.0), 1 / 24, 7.0, 7.0)
    assert started[0].times.watermarks.interval == 0.5
    assert started[1].times == Times()


def test_rate_of_the_scrub_reaches_the_store(monkeypatch):
    started = []
    monkeypatch.setattr(sarit.process.standalone, "run", lambda config, reload: started.append(config))
    for options in ([], ["--scrub", "0"], ["--scrub", "64M"]):
        assert CliRunner().invoke(standalone, options).exit_code == 0
    rates = [config.validated().on_machine(4096 * MIB).limits.scrub_bytes_per_second for config in started]
    assert rates == [8 * MIB, 0, 64 * MIB]


OPTIONS_OF_STORES = {field.name for field in dataclasses.fields(NodeConfig)} & {
    field.name for field in dataclasses.fields(StoreLimits)
}


@pytest.mark.parametrize("option", sorted(OPTIONS_OF_STORES))
@pytest.mark.parametrize("processes", [1, 2])
def test_an_option_of_the_store_reaches_each_store(option, processes):
    value = getattr(NodeConfig("data"), option) * 2 + 2
    config = replace(NodeConfig("data", processes=processes), **{option: value}).validated()
    stores = config.divided(8192 * MIB, 1 << 20) if processes > 1 else [config.on_machine(8192 * MIB)]
    found = [getattr(store.limits, option) for store in stores]
    # A rate is divided among the stores; a number, such as that of all containers, is the same for each.
    assert found in ([value] * processes, [value // processes] * processes)


def test_connections_are_as_many_as_open_files_allow():
    config = NodeConfig("data", containers=2)
    assert config.within(1 << 20) == replace(config, open_files=1 << 20)
    few = config.within(460)
    assert (few.max_connections, few.max_api_connections) == (104, 52)
    both = NodeConfig("data", containers=2, one_port=True).within(460)
    assert both.max_connections + 2 * both.max_api_connections <= 156
    with pytest.raises(Invalid, match="may have 300 open files; a node of 2 containers needs 334"):
        config.within(300)


@pytest.mark.parametrize("containers", [1, 4, 16, 1024])
@pytest.mark.parametrize("object_storage", [False, True], ids=["directory", "objects"])
@pytest.mark.parametrize("factor", [1, 3, 64])
def test_all_parts_together_stay_within_the_memory(containers, object_storage, factor):
    memory = min_memory(containers) * factor
    limits = divide_memory(memory, containers, object_storage=object_storage)
    control = limits.max_dirty_bytes + limits.max_dirty_bytes // 4
    container = limits.container.entry_cache_bytes + limits.container.metadata_bytes + limits.index_cache_bytes
    # What is read, and what is written.
    container += 2 * limits.flush.compaction_bytes
    if object_storage:
        container += limits.flush.concurrent_writes * limits.flush.chunk_bytes
        container += limits.flush.concurrent_small_writes * limits.flush.small_extent_bytes
    parts = control + limits.cache_bytes + limits.chunk_cache_bytes + 2 * limits.connections_bytes
    parts += containers * container
    assert parts <= memory
    assert parts > memory * 0.8
    assert limits.flush.trigger_bytes * containers <= limits.max_dirty_bytes
    assert limits.flush.compaction_bytes >= 2 * limits.flush.small_extent_bytes


def test_two_gibibytes_give_the_limits_that_were_fixed_before():
    limits = divide_memory(2048 * MIB, 4, object_storage=False)
    assert (limits.max_dirty_bytes, limits.cache_bytes, limits.chunk_cache_bytes) == (768 * MIB, 128 * MIB, 64 * MIB)
    assert limits.flush.trigger_bytes == 48 * MIB


def test_default_memory_is_a_quarter_of_the_machine_and_at_most_two_gibibytes():
    assert choose_memory(None, 4096 * MIB, 4) == 1024 * MIB
    assert choose_memory(None, 64 * 1024 * MIB, 4) == 2048 * MIB
    assert choose_memory(None, 512 * MIB, 4) == min_memory(4)
    assert choose_memory(700 * MIB, 1024 * MIB, 4) == 700 * MIB


@pytest.mark.parametrize(
    ("asked", "machine", "error"),
    [
        (255 * MIB, 4096 * MIB, "--memory 255M is too little: a node of 4 containers needs 256M"),
        (4000 * MIB, 4096 * MIB, "--memory 4000M is too much: .* has 4096M, .*: choose at most 3968M"),
        (None, 300 * MIB, "--memory 256M is too much: .* has 300M, .* a node of 4 containers needs 256M"),
    ],
)
def test_memory_that_does_not_fit_is_refused(asked, machine, error):
    with pytest.raises(Invalid, match=error):
        choose_memory(asked, machine, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512M", 512 * MIB), ("2g", 2048 * MIB), ("1536MiB", 1536 * MIB), ("2147483648", 2048 * MIB), ("1T", MIB * MIB)],
)
def test_memory_is_given_as_size(monkeypatch, text, expected):
    started = []
    monkeypatch.setattr(sarit.process.standalone, "run", lambda config, reload: started.append(config))
    assert CliRunner().invoke(standalone, ["--memory", text]).exit_code == 0
    assert started[0].memory_bytes == expected


@pytest.mark.parametrize("text", ["much", "2X", "-1", "1.5G", ""])
def test_memory_that_is_no_size_is_refused(text):
    result = CliRunner().invoke(standalone, ["--memory", text])
    assert result.exit_code == 2
    assert "is not a size: write it as 512M, 2G, or in bytes" in result.output


def test_limits_of_the_machine_follow_its_memory():
    config = NodeConfig("data", containers=2, memory_bytes=512 * MIB).validated().on_machine(4096 * MIB)
    assert config.limits == divide_memory(512 * MIB, 2, object_storage=False)
    remote = NodeConfig("data", storage_url="s3://b/p").validated().on_machine(4096 * MIB)
    assert remote.limits == divide_memory(1024 * MIB, 4, object_storage=True)
    assert remote.limits.flush.inline_below_bytes == INLINE_BELOW_BYTES
    no_files = divide_memory(1024 * MIB, 4, object_storage=True, shared_index=True)
    assert no_files.flush.inline_below_bytes == 0
    assert machine_memory() > 64 * MIB


def test_limits_of_all_control_groups_above_count():
    assert cgroup_limit_files("0::/a/b\n") == [
        "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/a/b/memory.max"
    ]  # fmt: skip
    old = "3:cpu,cpuacct:/x\n2:memory:/x\n"
    assert cgroup_limit_files(old) == [
        "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("storage", "index", "seconds"),
    [
        (None, None, 2.0),
        ("file:///chunks", None, 2.0),
        ("s3://bucket/chunks", None, 10.0),
        (None, "s3://bucket/indexes", 10.0),
        ("s3://bucket/chunks", "s3://bucket/indexes", 10.0),
    ],
)
def test_checkpoints_come_less_often_where_requests_cost_money(storage, index, seconds):
    config = NodeConfig("data", storage_url=storage, index_url=index, processes=2).validated()
    assert config.on_machine(8192 * MIB).limits.flush.interval_seconds == seconds
    assert [part.limits.flush.interval_seconds for part in config.divided(16384 * MIB, 4096)] == [seconds, seconds]
