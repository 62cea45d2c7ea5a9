"""Key-value tables of a link: equal rows, in the source's order, with versions that no table of the source has."""

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sarit.core.errors import Forbidden, Invalid, Unavailable
from sarit.core.links import LinkDirection, LinkSettings
from sarit.core.names import StreamName
from sarit.mirror.attached_copy import AttachedCopy
from sarit.mirror.attachments import NO_POSITION, TableAsk, TableChanges, TableWrite
from sarit.mirror.values import MirrorStatus
from tests.limits import HANG_SECONDS
from tests.unit.mirror.installations import LINK, OTHER_LINK, Side, installation

T = StreamName("s", "t")
SETTINGS = LinkSettings(LinkDirection.PUSH, "core:9090")


@asynccontextmanager
async def edge_and_core():
    edge, core = await installation("edge", 1), await installation("core", 2)
    try:
        yield edge, core
    finally:
        await edge.stop()
        await core.stop()


def run(test):
    async def main():
        async with asyncio.timeout(HANG_SECONDS), edge_and_core() as (edge, core):
            await test(edge, core)

    asyncio.run(main())


async def copy(edge, core, copier=None, link=LINK, scope="s", source=None, target=None):
    copier = copier or AttachedCopy()
    source, target = source or edge.attached_source, target or core.attached_target
    return await copier.copy(Side(source), Side(target), link, SETTINGS, scope, [])


async def state_of(edge, core, link=LINK):
    facts = await edge.attached_source.tables("s", "")
    return (await core.attached_target.begin_tables(link, "s", facts))[0]


def test_a_mirror_of_a_table_has_its_rows_and_follows_its_changes():
    async def test(edge, core):
        await edge.make_table("s", "t", partitions=3)
        segments = await edge.segments("s", "t")
        for number, segment in enumerate(segments):
            await edge.change(segment, aa=f"{number}", bb="2")
        copier = AttachedCopy()
        assert await copy(edge, core, copier) == []
        mirrors = await core.segments("s", "t")
        for segment, mirror in zip(segments, mirrors, strict=True):
            assert await core.rows(mirror) == await edge.rows(segment)
        before = await state_of(edge, core)
        await edge.change(segments[0], aa=None, cc="3")
        await edge.change(segments[0], bb="4")
        assert await copy(edge, core, copier) == []
        assert await core.rows(mirrors[0]) == {b"bb": b"4", b"cc": b"3"}
        after = await state_of(edge, core)
        # The changes were followed: nothing was compared again.
        assert [one.comparison for one in after.partitions] == [one.comparison for one in before.partitions]
        assert after.partitions[0].source == await edge.controller.catalog.tables.position(segments[0])

    run(test)


def test_no_version_of_the_source_is_one_of_the_mirror():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        (version,) = await edge.change(segment, aa="1")
        await copy(edge, core)
        (mirror,) = await core.segments("s", "t")
        (entry,) = await core.store.tables(mirror).get(mirror, [b"aa"])
        assert version < 1 << 48 <= entry.version

    run(test)


def test_clients_change_a_mirror_only_once_it_is_promoted_and_the_link_not_any_more():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        await edge.change(segment, aa="1")
        await copy(edge, core)
        (mirror,) = await core.segments("s", "t")
        with pytest.raises(Forbidden):
            await core.change(mirror, aa="2")
        late = TableWrite(
            TableChanges(T, 0, NO_POSITION, 0, ((b"aa", b"late"),)), (await state_of(edge, core)).partitions[0]
        )
        promoted = await core.attached_target.promote_attached(LINK, "s")
        assert [(one.name, one.status, one.reason) for one in promoted] == [(T, MirrorStatus.PROMOTED, "")]
        await core.change(mirror, aa="2")
        assert (await core.attached_target.write_table(LINK, "s", late)).status is MirrorStatus.PROMOTED
        await edge.change(segment, aa="3")
        (problem,) = await copy(edge, core)
        assert "promoted" in problem.text
        assert await core.rows(mirror) == {b"aa": b"2"}
        assert await core.attached_target.promote_attached(LINK, "s") == promoted

    run(test)


def test_what_is_no_mirror_of_this_table_by_this_link_is_refused_by_name():
    async def test(edge, core):
        await edge.make_table("s", "t")
        await copy(edge, core)
        (other,) = await copy(edge, core, link=OTHER_LINK)
        assert "mirror of another link, to-core" in other.text
        await edge.controller.tables.delete("s", "t")
        await edge.make_table("s", "t")
        (again,) = await copy(edge, core)
        assert "created again" in again.text
        await core.make_table("s", "mine")
        await edge.make_table("s", "mine")
        problems = await copy(edge, core)
        assert any("no link made" in one.text for one in problems)
        back = replace(LINK, link_id=b"b" * 16, installation="core")
        loop, *_ = await copy(core, core, link=back, source=edge.attached_source, target=edge.attached_target)
        assert "loop" in loop.text

    run(test)


class Cutting:
    """A target whose calls fail at random: before they took effect, or after."""

    def __init__(self, target, chance):
        self._target, self._chance = target, chance

    def __getattr__(self, name):
        call = getattr(self._target, name)

        async def maybe(*arguments):
            if self._chance.random() < 0.03:
                raise ConnectionError("before")
            result = await call(*arguments)
            if self._chance.random() < 0.03:
                raise ConnectionError("after")
            return result

        return maybe


@pytest.mark.parametrize("seed", range(8))
def test_two_copiers_with_lost_replies_never_take_a_row_back(seed):
    """Each value is a number that rises, so a row that goes back is seen at once."""

    async def test(edge, core):
        chance = random.Random(seed)
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        seen: dict[bytes, int] = {}
        written = [0]

        async def write():
            for _ in range(150):
                keys = chance.sample("abcdefgh", chance.randrange(1, 4))
                changes = {}
                for key in keys:
                    written[0] += 1
                    changes[key * 2] = f"{written[0]}" if key < "f" or chance.random() < 0.7 else None
                await edge.change(segment, **changes)
                if chance.random() < 0.02:
                    edge.store.container(segment).state.feeds.__init__()  # so that they compare
                for _ in range(chance.choice((0, 1, 50, 300))):
                    await asyncio.sleep(0)

        async def watch():
            while not done:
                await asyncio.sleep(0)
                found = (
                    await core.controller.catalog.page("s", b"k/", "")
                    if await core.controller.catalog.scope("s")
                    else []
                )
                if not found:
                    continue
                (mirror,) = await core.segments("s", "t")
                for key, value in (await core.rows(mirror)).items():
                    assert int(value) >= seen.get(key, 0), f"{key} went back"
                    seen[key] = int(value)

        async def copying(number):
            copier, target = AttachedCopy(), Cutting(core.attached_target, random.Random(seed * 9 + number))
            while not done:
                try:
                    await copy(edge, core, copier, target=target)
                except (ConnectionError, Unavailable):
                    continue
                # Copiers that compare at the same time stop each other, so one of them rests often.
                for _ in range(chance.choice((1, 3000)) if number == 2 else 1):
                    await asyncio.sleep(0)

        done: list[bool] = []
        tasks = [asyncio.ensure_future(work) for work in (watch(), copying(1), copying(2))]
        await write()
        done.append(True)
        await asyncio.gather(*tasks)
        assert await copy(edge, core) == []
        (mirror,) = await core.segments("s", "t")
        assert await core.rows(mirror) == await edge.rows(segment)

    run(test)


async def written(core, state, *rows, since=NO_POSITION, until=0, ends=False):
    changes = TableChanges(T, 0, since, until, rows)
    found = await core.attached_target.write_table(LINK, "s", TableWrite(changes, state, ends))
    return found.partitions[0]


def test_a_late_batch_of_changes_changes_nothing():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        await edge.change(segment, aa="0")
        await copy(edge, core)
        before = (await state_of(edge, core)).partitions[0]
        ask = TableAsk(T, (await edge.attached_source.tables("s", ""))[0].creation_id, 0, before.source)
        await edge.change(segment, aa="1")
        late = TableWrite(await edge.attached_source.table_changes("s", ask), before)
        await copy(edge, core)
        await edge.change(segment, aa="2")
        await copy(edge, core)
        (mirror,) = await core.segments("s", "t")
        equal = (await state_of(edge, core)).partitions[0]
        after = (await core.attached_target.write_table(LINK, "s", late)).partitions[0]
        assert await core.rows(mirror) == {b"aa": b"2"}
        assert after == equal

    run(test)


def test_late_rows_of_a_comparison_change_nothing_and_end_it():
    async def test(edge, core):
        await edge.make_table("s", "t")
        await copy(edge, core)
        (mirror,) = await core.segments("s", "t")
        (first,) = (await core.attached_target.compare_table(LINK, "s", T, 0)).partitions
        second = await written(core, first, (b"aa", b"1"))
        third = await written(core, second, (b"aa", b"2"))
        assert await core.rows(mirror) == {b"aa": b"2"}
        ended = await written(core, first, (b"aa", b"1"))
        assert await core.rows(mirror) == {b"aa": b"2"}
        assert ended.comparison > third.comparison
        assert (await written(core, third, (b"aa", b"3"), ends=True)).source == NO_POSITION
        assert await core.rows(mirror) == {b"aa": b"2"}

    run(test)


def test_a_write_under_way_when_another_comparison_begins_changes_nothing():
    async def test(edge, core):
        await edge.make_table("s", "t")
        await copy(edge, core)
        (mirror,) = await core.segments("s", "t")
        (first,) = (await core.attached_target.compare_table(LINK, "s", T, 0)).partitions
        tables, waiting, go_on = core.controller.catalog.tables, asyncio.Event(), asyncio.Event()
        update_at = tables.update_at

        async def slow(*arguments):
            waiting.set()
            await go_on.wait()
            return await update_at(*arguments)

        tables.update_at = slow
        writing = asyncio.ensure_future(written(core, first, (b"aa", b"late")))
        await waiting.wait()
        tables.update_at = update_at
        await core.attached_target.compare_table(LINK, "s", T, 0)
        go_on.set()
        await writing
        assert await core.rows(mirror) == {}

    run(test)


def test_batches_of_the_source_are_batches_of_the_mirror():
    """Two keys that are always equal at the source are equal at the mirror, once it followed a batch."""

    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        copier = AttachedCopy()
        await edge.change(segment, aa="0", zz="0")
        await copy(edge, core, copier)
        (mirror,) = await core.segments("s", "t")
        compared: list[bool] = []
        done: list[bool] = []

        async def watch():
            while not done:
                rows = await core.rows(mirror)
                compared.append(rows[b"aa"] == rows[b"zz"])
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        for number in range(40):
            await edge.change(segment, aa=f"{number}", zz=f"{number}")
            await copy(edge, core, copier)
        done.append(True)
        await watching
        assert all(compared)
        assert len(compared) > 40

    run(test)


def test_changes_that_the_source_forgot_are_found_by_a_comparison_with_removals():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        await edge.change(segment, aa="1", bb="2")
        await copy(edge, core)
        edge.store.container(segment).state.feeds.__init__()  # as after a restart
        await edge.change(segment, aa=None, cc="3")
        before = (await state_of(edge, core)).partitions[0].comparison
        assert await copy(edge, core) == []
        (mirror,) = await core.segments("s", "t")
        assert await core.rows(mirror) == {b"bb": b"2", b"cc": b"3"}
        assert (await state_of(edge, core)).partitions[0].comparison == before + 1

    run(test)


HOSTILE = {
    "a key of another length": TableChanges(T, 0, NO_POSITION, 0, ((b"abc", b""),)),
    "keys out of order": TableChanges(T, 0, NO_POSITION, 0, ((b"bb", b""), (b"aa", b""))),
    "a key outside of the range": TableChanges(T, 0, NO_POSITION, 0, ((b"aa", b""),), b"bb"),
    "a long value": TableChanges(T, 0, NO_POSITION, 0, ((b"aa", bytes(1 << 20)),)),
    "too many rows": TableChanges(T, 0, 5, 6, ((b"aa", b""),) * 20_000),
    "positions that go backwards": TableChanges(T, 0, 7, 6, ()),
    "another scope": TableChanges(StreamName("other", "t"), 0, NO_POSITION, 0, ()),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_rows_that_no_source_has_are_refused(what):
    async def test(edge, core):
        await edge.make_table("s", "t")
        await copy(edge, core)
        state = (await state_of(edge, core)).partitions[0]
        with pytest.raises(Invalid):
            await core.attached_target.write_table(LINK, "s", TableWrite(HOSTILE[what], state))

    run(test)


def test_a_mirror_that_is_deleted_is_made_again():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        await edge.change(segment, aa="1")
        await copy(edge, core)
        (first,) = await core.segments("s", "t")
        await core.controller.tables.delete("s", "t")
        assert await copy(edge, core) == []
        (mirror,) = await core.segments("s", "t")
        assert mirror != first
        assert await core.rows(mirror) == {b"aa": b"1"}

    run(test)


def test_only_chosen_tables_are_asked_for_and_unchanged_ones_cost_no_call():
    async def test(edge, core):
        await edge.make_table("s", "t")
        asked = []

        class Counting:
            def __getattr__(self, name):
                asked.append(name)
                return getattr(core.attached_target, name)

        copier = AttachedCopy()
        await copy(edge, core, copier, target=Counting())
        asked.clear()
        await copy(edge, core, copier, target=Counting())
        assert asked == ["cut_times"] * 0
        elsewhere = LinkSettings(LinkDirection.PUSH, "core:9090", exclude=("s/t*",))
        assert await AttachedCopy().copy(Side(edge.attached_source), Side(Counting()), LINK, elsewhere, "s", []) == []
        assert asked == []

    run(test)


def test_a_table_created_again_is_not_read_under_its_old_identity():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (facts,) = await edge.attached_source.tables("s", "")
        await edge.controller.tables.delete("s", "t")
        await edge.make_table("s", "t")
        with pytest.raises(LookupError):
            await edge.attached_source.table_changes("s", TableAsk(T, facts.creation_id, 0, NO_POSITION))

    run(test)


def test_a_mirror_goes_on_by_another_link_once_its_own_was_deleted_here():
    async def test(edge, core):
        await edge.make_table("s", "t")
        (segment,) = await edge.segments("s", "t")
        await edge.change(segment, aa="1")
        await copy(edge, core)
        former = (await state_of(edge, core)).partitions[0]
        (refused,) = await copy(edge, core, link=OTHER_LINK)
        assert "delete that link first" in refused.text
        await core.links.delete(await core.links.get("to-core"))
        await edge.change(segment, aa="2")
        assert await copy(edge, core, link=OTHER_LINK) == []
        (mirror,) = await core.segments("s", "t")
        assert await core.rows(mirror) == {b"aa": b"2"}
        late = TableWrite(TableChanges(T, 0, NO_POSITION, 0, ((b"aa", b"late"),)), former)
        assert (await core.attached_target.write_table(LINK, "s", late)).status is MirrorStatus.REFUSED
        assert await core.attached_target.promote_attached(LINK, "s") == []
        assert await core.rows(mirror) == {b"aa": b"2"}

    run(test)
