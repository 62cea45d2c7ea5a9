"""Shared settings: pure rules, then several processes on a real node."""

import asyncio

import pytest

from sarit.client.sync import configuration
from sarit.client.sync.revisioned_stream import Revision
from sarit.core.errors import Corrupt, Invalid
from tests.limits import HANG_SECONDS
from tests.unit.client.nodes import on_node


def test_bytes_of_settings() -> None:
    assert configuration.encode({"a": [1, None]}) == b'{"version":1,"values":{"a":[1,null]}}'
    assert configuration.decode(b'{"version":1,"values":{"a":1}}') == {"a": 1}
    for broken in (b"", b"[]", b'{"version":2,"values":{}}', b'{"version":1}', b'{"version":1,"values":3}'):
        with pytest.raises(Corrupt):
            configuration.decode(broken)
    with pytest.raises(Corrupt):
        configuration.apply({}, b'{"set":{}}', Revision(0))


def test_difference_leads_from_one_to_the_other() -> None:
    before, after = {"same": {"x": 1}, "changed": 1, "gone": 2}, {"same": {"x": 1}, "changed": True, "new": []}
    update = configuration.difference(before, after)
    assert update == b'{"set":{"changed":true,"new":[]},"remove":["gone"]}'
    assert configuration.apply(before, update, Revision(0)) == after
    assert configuration.difference(after, dict(after)) is None


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, "x" * 1_000_000])
def test_values_that_are_not_json_or_too_long_are_refused(value) -> None:
    with pytest.raises(Invalid):
        configuration.difference({}, {"name": value})
    with pytest.raises(Invalid):
        configuration.difference({}, {1: "number as a name"})


@on_node
async def test_all_copies_see_every_change(made) -> None:
    coordination = made.client.coordination
    one = await coordination.shared_configuration("s/settings", {"limit": 1})
    two = await coordination.shared_configuration("s/settings", {"limit": 99})
    assert two.values == {"limit": 1}
    seen = []

    async def watch() -> None:
        async for values in two.watch():
            seen.append(values)
            if values.get("limit") == 3:
                return

    watching = asyncio.ensure_future(watch())
    await one.set("limit", 2)
    await one.set("servers", ["a", "b"])
    assert await two.remove("servers")
    assert not await two.remove("servers")
    await one.edit(lambda values: values.update(limit=values["limit"] + 1))
    await asyncio.wait_for(watching, HANG_SECONDS)
    assert seen[0] == {"limit": 1}
    assert seen[-1] == {"limit": 3} == one.values
    assert (two.get("limit"), two.get("none", 7)) == (3, 7)
    two.values["limit"] = 1000
    assert two.get("limit") == 3, "copies are given"
    await one.close()
    await two.close()
    with pytest.raises(Invalid):
        await one.changed(one.version)


@on_node
async def test_no_edit_is_lost_and_failed_edits_change_nothing(made) -> None:
    copies = [await made.client.coordination.shared_configuration("s/settings", {"n": 0}) for _ in range(4)]

    async def count(copy) -> None:
        for _ in range(25):
            await copy.edit(lambda values: values.update(n=values["n"] + 1))

    await asyncio.gather(*map(count, copies))
    for copy in copies:
        await copy.refresh()
        assert copy.values == {"n": 100}
    before = copies[0].version
    with pytest.raises(ZeroDivisionError):
        await copies[0].edit(lambda values: values.update(n=1 // 0))
    with pytest.raises(Invalid):
        await copies[0].set("n", object())
    await copies[1].refresh()
    assert (copies[0].version, copies[1].version, copies[1].values) == (before, before, {"n": 100})
    for copy in copies:
        await copy.close()


@on_node
async def test_error_in_the_configuration_task_is_raised_to_waiters(made) -> None:
    """It was logged alone, and they waited for ever."""
    coordination = made.client.coordination
    one = await coordination.shared_configuration("s/settings", {})
    two = await coordination.shared_configuration("s/settings", {})

    async def broken() -> None:
        raise RuntimeError("a bug")

    two._shared.fetch = broken
    waiting = asyncio.ensure_future(two.changed(two.version))
    await one.set("a", 1)
    async with asyncio.timeout(HANG_SECONDS):
        with pytest.raises(RuntimeError, match="a bug"):
            await waiting
    await one.close()
