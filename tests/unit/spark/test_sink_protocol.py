"""The protocol of the exactly-once sink: random and exhaustive histories of deaths, and mistakes that they find."""

from __future__ import annotations

import inspect
import random
import sys
from functools import partial
from types import ModuleType

import pytest

from sarit.core.errors import Conflict, Corrupt, Invalid
from sarit.spark.limits import SPARK_BATCHES_KEPT
from sarit.spark.sink import protocol
from tests.unit.spark.sink_model import (
    Process,
    Run,
    World,
    check_end,
    complete,
    expected,
    explore,
    late_attempt,
    withdrawn_while_tasks_run,
)

HISTORIES = 3000


def test_random_histories_are_visible_once_and_leave_nothing_open():
    for seed in range(HISTORIES):
        try:
            explore(protocol, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("history", [late_attempt, withdrawn_while_tasks_run])
def test_rare_history_is_visible_once_and_leaves_nothing_open(history):
    history(protocol)


def run_until_commit(world, batch):
    run = Run(world, batch)
    while run.driver is None:
        for process in run.processes:
            process.step()
        run.progress()
    return run


def steps_of_commit():
    run = run_until_commit(World(protocol), 1)
    steps = 0
    while not run.driver.done:
        run.driver.step()
        steps += 1
    return steps


def test_driver_dies_after_every_step_of_commit_and_of_the_next_commit():
    steps = steps_of_commit()
    assert steps >= 15
    for first in range(steps + 1):
        for second in range(steps + 1):
            world = World(protocol)
            for count in (first, second):
                run = run_until_commit(world, 1)
                for _ in range(count):
                    if not run.driver.done:
                        run.driver.step()
                run.kill_driver()
            check_end(world, 1)


def test_task_dies_after_every_step():
    steps = 0
    process = Run(World(protocol), 1).attempts[0][1]
    while not process.done:
        process.step()
        steps += 1
    for count in range(steps + 1):
        world = World(protocol)
        run = Run(world, 1)
        partition, process = run.attempts[0]
        for _ in range(count):
            if not process.done:
                process.step()
        run.attempts.remove((partition, process))
        run.attempt(partition)
        run.finish()
        assert run.committed
        check_end(world, 1)


def test_second_driver_commits_what_the_first_one_recorded():
    world = World(protocol)
    first, second = run_until_commit(world, 1), run_until_commit(world, 1)
    while first.driver.stores is False:
        first.driver.step()
    first.driver.step()
    second.finish()
    assert second.driver.result is False
    assert world.visible == expected(1)
    first.finish()
    assert first.driver.result is True
    check_end(world, 1)


def test_lease_that_ends_before_the_decision_fails_the_batch_and_hides_it():
    world = World(protocol)
    run = run_until_commit(world, 1)
    world.expire(min(world.registered).transaction)
    run.finish()
    assert isinstance(run.error, Conflict)
    assert not world.visible
    assert complete(world, 1) is None
    assert world.visible == expected(1)


def decided(world):
    """A driver that died right after the record."""
    run = run_until_commit(world, 1)
    while not world.records:
        run.driver.step()
    run.kill_driver()
    return world.records[1][0].winners


def test_batch_whose_winners_all_expired_is_written_again():
    world = World(protocol)
    for winner in decided(world):
        world.expire(winner)
    assert complete(world, 1) is None
    assert world.visible == expected(1)


def test_batch_of_which_a_part_expired_is_an_error_that_names_it():
    world = World(protocol)
    winners = decided(world)
    world.expire(winners[1])
    error = complete(world, 1)
    assert isinstance(error, Corrupt)
    assert winners[1].id in str(error)
    assert winners[1].stream in str(error)
    assert "batch 1 " in str(error)


def test_ended_transactions_that_nobody_knows_any_more_are_an_error():
    world = World(protocol)
    for winner in decided(world):
        world.transactions[winner].state = "unknown"
    assert isinstance(complete(world, 1), Corrupt)


def test_batch_older_than_the_records_is_refused():
    world = World(protocol)
    for batch in range(SPARK_BATCHES_KEPT + 41):
        assert complete(world, batch) is None
    assert world.oldest == 40
    assert min(world.records) == 40
    before = world.visible.copy()
    with pytest.raises(Invalid, match="batch 39 is older"):
        raise Process(world, "task", 39, protocol.start_task(39)).run().error
    with pytest.raises(Invalid, match="batch 39 is older"):
        raise Process(world, "commit", 39, protocol.commit_batch(39, [], skipped=False)).run().error
    assert world.visible == before


def test_empty_batch_is_recorded_at_once():
    world = World(protocol)
    assert Process(world, "commit", 1, protocol.commit_batch(1, [], skipped=False)).run().result
    assert world.records[1][0].state == protocol.DONE


def test_every_step_of_the_table_is_taken_by_somebody():
    source = inspect.getsource(protocol)
    assert all(f'"{event}"' in source.split("# -- a task")[1] for _, event in protocol.STEPS)
    with pytest.raises(AssertionError, match="done: decide"):
        protocol.after(protocol.DONE, "decide")


MISTAKES = {
    "commits before it records": (
        '    event = "decide" if mine else',
        '    yield Commit(mine)\n    event = "decide" if mine else',
    ),
    "records losers": (
        "    mine = tuple(sorted(prepared))\n",
        "    mine = tuple(sorted(one.transaction for one in (yield ListRegistered()) if one.batch == batch))\n",
    ),
    "does not abort losers": ("    if losers:\n        yield Abort(losers)\n", ""),
    "overwrites an earlier record": ("        if found.state == DECIDED:\n", "        if found.state == 'never':\n"),
    "aborts a batch that was decided": (
        "    winners = found.record.winners if found.record else ()\n    registered:",
        "    winners = ()\n    registered:",
    ),
    "does not read again after the registration": (
        "    if not writable(found):\n        yield Abort((transaction,))\n        return None\n",
        "",
    ),
    "does not register": ("    yield Register(transaction)\n", ""),
    "goes on when a part is lost": (
        "        raise lost_winners(batch, outcomes)\n",
        "        return (yield from _stored(found, Record(DONE, winners)))\n",
    ),
    "ignores tasks that skipped": ("    if skipped:\n        raise", "    if False:\n        raise"),
}


def with_mistake(name: str) -> ModuleType:
    """The protocol with a mistake in it."""
    source = inspect.getsource(protocol)
    right, wrong = MISTAKES[name]
    assert source.count(right) == 1, f"{name}: the line to change is not there once"
    module = ModuleType("protocol_with_mistake")
    sys.modules[module.__name__] = module  # dataclasses ask for it
    exec(compile(source.replace(right, wrong), "protocol_with_mistake.py", "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found(name):
    mistaken = with_mistake(name)
    histories = [late_attempt, withdrawn_while_tasks_run]
    histories += [partial(explore, chance=random.Random(seed)) for seed in range(HISTORIES)]
    with pytest.raises((AssertionError, RuntimeError)):
        for history in histories:
            history(mistaken)
