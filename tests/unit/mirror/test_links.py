"""Links: what may be stored, its bytes, and links that exclude each other."""

import asyncio
import random
import re
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, Corrupt, Exists, Invalid, NotFound
from sarit.core.links import (
    HoldOverflow,
    Link,
    LinkDirection,
    LinkRole,
    LinkSettings,
    LinkState,
    LinkStatus,
    StreamProblem,
)
from sarit.core.policies import RetentionPolicy, RetentionType
from sarit.mirror.limits import (
    MAX_LINK_GLOBS,
    MAX_LINK_NOTE_CHARACTERS,
    MAX_LINK_PROBLEMS,
    MAX_LINKS,
    MAX_PASSIVE_LINKS,
    MAX_PASSIVE_LINKS_OF_SCOPE,
)
from sarit.mirror.link_checks import check_name, check_settings, minutes_of
from sarit.mirror.link_codec import decode_link, decode_status, encode_link, encode_status
from sarit.mirror.link_table import LinkTable, job_of
from sarit.mirror.values import FROM_TAIL, LinkIdentity
from tests.test_tidy import ROOT
from tests.unit.controller.fakes import FakeTables

ID = bytes(range(16))
SETTINGS = LinkSettings(LinkDirection.PUSH, "core:9090")
LINK = Link("plant", ID, 5, LinkRole.ACTIVE, LinkState.ACTIVE, SETTINGS)
FULL = LinkSettings(
    LinkDirection.PULL, "tls://edge.example:9090", "copier", "env:SARIT_LINK_EDGE", "/etc/sarit/ca.pem",
    include=("factory/*", "lab/x?"), exclude=("factory/tmp*",), priorities=(("factory/alarm*", 9), ("*/*", -1)),
    bytes_per_second=1_000_000, window="22:00-06:00", start_ms=FROM_TAIL,
    retention=RetentionPolicy(RetentionType.TIME, 1000, 2000), hold_bytes=1 << 30, overflow=HoldOverflow.DROP,
    tables=False, registry=False, groups=True, restart=True, discard_divergent=True,
)  # fmt: skip
STATUS = LinkStatus(
    True, 1_700_000_000_000, 10_000, 1 << 40, 12.5, 1 << 50, 7, -3000, True, 2, (StreamProblem("a/x", "refused"),), "hi"
)


def link(name: str, number: int = 1, **settings) -> Link:
    return replace(LINK, name=name, link_id=bytes((number,)) * 16, settings=replace(SETTINGS, **settings))


def run(work):
    return asyncio.run(work)


# -- bytes ------------------------------------------------------------------------------------------


def test_a_link_is_read_as_it_was_written() -> None:
    for settings in (SETTINGS, FULL, replace(FULL, retention=None, follow_truncation=True)):
        for role in LinkRole:
            for state in LinkState:
                one = Link("plant", ID, 5, role, state, settings, "other", 7)
                assert decode_link("plant", encode_link(one), 7) == one


def test_the_bytes_of_a_link_are_those_of_the_page_of_formats() -> None:
    page = (ROOT / "docs/formats/links.md").read_text()
    examples = re.findall(r"^    ([0-9a-f ]+?)(?:    |$)", page, re.MULTILINE)
    shown = "".join(examples).replace(" ", "")
    assert shown == encode_link(LINK).hex() + encode_status(STATUS).hex()


def test_damaged_bytes_of_a_link_are_refused_by_name() -> None:
    data = encode_link(replace(LINK, settings=FULL))
    chance = random.Random(1)
    for cut in range(len(data)):
        with pytest.raises(Corrupt, match="link plant is damaged"):
            decode_link("plant", data[:cut], 1)
    with pytest.raises(Corrupt, match="format is 2, and 1 is known"):
        decode_link("plant", b"\2" + data[1:], 1)
    with pytest.raises(Corrupt, match="after its end"):
        decode_link("plant", data + b"\0", 1)
    for _ in range(2000):
        broken = bytearray(data)
        broken[chance.randrange(len(data))] = chance.randrange(256)
        try:
            decode_link("plant", bytes(broken), 1)
        except Corrupt:
            continue


def test_a_status_is_read_as_it_was_written_and_stays_small() -> None:
    status = replace(STATUS, problems=(*STATUS.problems, StreamProblem("a/y", "ü")))
    assert decode_status(encode_status(status)) == status
    assert decode_status(b"") == LinkStatus()
    many = replace(status, problems=(StreamProblem("s/" + "x" * 250, "no\n" * 1000),) * 1000, note="\0" * 5000)
    data = encode_status(many)
    found = decode_status(data)
    assert len(data) < 20_000
    assert len(found.problems) == MAX_LINK_PROBLEMS
    assert len(found.problems[0].text) == MAX_LINK_NOTE_CHARACTERS
    assert found.problems[0].text.isprintable()
    with pytest.raises(Corrupt, match="the state of a link is damaged"):
        decode_status(data[:-1])


# -- checks -----------------------------------------------------------------------------------------

BAD = [
    ({"peer": ""}, "HOST:PORT"),
    ({"peer": "core"}, "HOST:PORT"),
    ({"peer": "http://core:9090"}, "HOST:PORT"),
    ({"peer": "core:99999"}, "HOST:PORT"),
    ({"peer": "core:9090\n"}, "cannot be printed"),
    ({"user": "copier"}, "give both, or neither"),
    ({"password": "env:SARIT_LINK_A"}, "give both, or neither"),
    ({"user": "a b", "password": "env:SARIT_LINK_A"}, "name of a user"),
    ({"user": "a", "password": "secret"}, "never the password"),
    ({"user": "a", "password": "env:AWS_SECRET_ACCESS_KEY"}, "begins with SARIT_LINK_"),
    ({"user": "a", "password": "file:/etc/shadow"}, r"ends in \.password"),
    ({"user": "a", "password": "file:x.password"}, "a whole path"),
    ({"user": "a", "password": "file:/x/../etc/y.password"}, "a whole path"),
    ({"ca": "ca.pem", "peer": "tls://core:9090"}, "whole path"),
    ({"ca": "/ca.pem"}, "no address with TLS"),
    ({"include": ()}, "copies nothing"),
    ({"include": ("factory",)}, "no glob of SCOPE/STREAM"),
    ({"include": ("_system/*",)}, "no glob of SCOPE/STREAM"),
    ({"exclude": ("a/b/c",)}, "no glob of SCOPE/STREAM"),
    ({"include": ("a/b",) * (MAX_LINK_GLOBS + 1)}, "the most is"),
    ({"priorities": (("a/*", 101),)}, "-100 to 100"),
    ({"priorities": (("a", 1),)}, "no glob of SCOPE/STREAM"),
    ({"bytes_per_second": 100}, "8192 to"),
    ({"bytes_per_second": -1}, "8192 to"),
    ({"window": "22-6"}, "22:00-06:00"),
    ({"window": "24:00-06:00"}, "22:00-06:00"),
    ({"window": "06:00-06:00"}, "22:00-06:00"),
    ({"start_ms": -2}, "is no time"),
    ({"hold_bytes": 5}, "1048576 to"),
    ({"overflow": HoldOverflow.DROP}, "only with a hold"),
    ({"retention": RetentionPolicy(RetentionType.TIME, 5), "follow_truncation": True}, "not both"),
    ({"retention": RetentionPolicy(RetentionType.TIME, 5, 4)}, "at least 5"),
]


@pytest.mark.parametrize(("wrong", "text"), BAD, ids=[str(wrong)[:50] for wrong, _ in BAD])
def test_bad_settings_are_refused_with_what_to_give(wrong, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        check_settings(replace(SETTINGS, **wrong))


def test_a_password_that_was_given_by_mistake_is_not_shown() -> None:
    with pytest.raises(Invalid) as refused:
        check_settings(replace(SETTINGS, user="a", password="hunter2"))
    assert "hunter2" not in str(refused.value)


def test_good_settings_are_accepted() -> None:
    check_settings(SETTINGS)
    check_settings(replace(FULL, overflow=HoldOverflow.THROTTLE))
    check_settings(replace(SETTINGS, user="a", password="file:/run/secrets/core.password", peer="[::1]:9090"))
    assert minutes_of("22:00-06:30") == (1320, 390)
    assert minutes_of("") is None


@pytest.mark.parametrize("name", ["", "A", "a_b", "a/b", "-a", "a" * 49, "a\n"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="small letters"):
        check_name(name)


# -- the table --------------------------------------------------------------------------------------


def test_links_are_created_read_changed_and_deleted() -> None:
    async def work() -> None:
        table = LinkTable(FakeTables(), "here")
        assert await table.list() == []
        assert await table.get("plant") is None
        made = await table.create(LINK)
        assert await table.get("plant") == made
        assert await table.list() == [made]
        with pytest.raises(Exists, match="give another name"):
            await table.create(replace(LINK, link_id=bytes(16)))
        paused = await table.update(replace(made, state=LinkState.PAUSED, peer_installation="there"))
        assert await table.require("plant") == paused
        assert paused.version != made.version
        with pytest.raises(Conflict):
            await table.update(replace(made, state=LinkState.ACTIVE))
        with pytest.raises(Conflict, match="in between"):
            await table.change(made, replace(SETTINGS, bytes_per_second=1 << 20))
        changed = await table.change(paused, replace(SETTINGS, bytes_per_second=1 << 20))
        assert (await table.require("plant")).settings.bytes_per_second == 1 << 20
        with pytest.raises(Invalid, match="the direction of a link stays as it is"):
            await table.change(changed, replace(SETTINGS, direction=LinkDirection.PULL))
        with pytest.raises(Invalid, match="the start of a link stays"):
            await table.change(changed, replace(SETTINGS, start_ms=FROM_TAIL))
        await table.delete(changed)
        await table.delete(changed)
        assert await table.list() == []
        with pytest.raises(NotFound, match="sarit link list"):
            await table.require("plant")
        with pytest.raises(Conflict):
            await table.update(changed)

    run(work())


def test_two_links_into_one_stream_are_refused() -> None:
    async def work() -> None:
        table = LinkTable(FakeTables(), "here")
        await table.create(link("a", 1, direction=LinkDirection.PULL, include=("factory/*",)))
        with pytest.raises(Exists, match=r"\*/x of link b and factory/\* of link a can be the same stream"):
            await table.create(link("b", 2, direction=LinkDirection.PULL, peer="other:9090", include=("*/x",)))
        await table.create(link("b", 2, direction=LinkDirection.PULL, include=("lab/*",)))
        with pytest.raises(Exists, match="the same stream"):  # also by a change
            await table.change(await table.require("b"), replace(link("b").settings, direction=LinkDirection.PULL))
        with pytest.raises(Invalid, match="in a circle"):
            await table.create(link("c", 3, include=("factory/y",)))
        await table.create(link("c", 3, include=("factory/y",), peer="third:9090"))  # on to a third installation
        await table.create(link("d", 4, include=("factory/*",), exclude=("factory/y",), peer="fourth:9090"))
        with pytest.raises(Exists, match="the same stream"):
            await table.create(link("e", 5, include=("factory/z*",), peer="fourth:9090"))
        promoted = await table.update(replace(await table.require("d"), state=LinkState.PROMOTED))
        await table.create(link("e", 5, include=("factory/z*",), peer="fourth:9090"))  # the other one has ended
        assert promoted.state is LinkState.PROMOTED

    run(work())


def test_a_link_to_its_own_installation_is_refused() -> None:
    async def work() -> None:
        with pytest.raises(Invalid, match="from this installation to itself"):
            await LinkTable(FakeTables(), "here").create(replace(LINK, peer_installation="here"))

    run(work())


def test_two_creations_at_once_do_not_both_pass_the_check() -> None:
    async def work() -> None:
        tables = FakeTables()
        made = [
            LinkTable(tables, "here").create(link(f"l{at}", at, direction=LinkDirection.PULL, peer=f"p{at}:1"))
            for at in range(8)
        ]
        results = await asyncio.gather(*made, return_exceptions=True)
        assert sum(isinstance(each, Link) for each in results) == 1
        assert sum(isinstance(each, Exists) for each in results) == 7

    run(work())


def test_the_number_of_links_is_bounded() -> None:
    async def work() -> None:
        table = LinkTable(FakeTables(), "here")
        for at in range(MAX_PASSIVE_LINKS):
            scope = f"s{at // MAX_PASSIVE_LINKS_OF_SCOPE}"
            await table.passive(LinkIdentity(at.to_bytes(16, "big"), f"l{at}", "there"), scope)
        with pytest.raises(Invalid, match="which is the limit"):
            await table.passive(LinkIdentity(ID, "one-more", "there"), "free")
        await table.passive(LinkIdentity(bytes(16), "l0", "there"), "b")  # a known one
        for at in range(MAX_LINKS - MAX_PASSIVE_LINKS):  # administrators have room for theirs
            await table.create(link(f"a{at}", 1, include=(f"s{at}/*",)))
        with pytest.raises(Invalid, match="which is the limit"):
            await table.create(LINK)

    run(work())


def test_links_into_one_scope_do_not_use_up_those_of_others() -> None:
    async def work() -> None:
        table = LinkTable(FakeTables(), "here")
        for at in range(MAX_PASSIVE_LINKS_OF_SCOPE):
            await table.passive(LinkIdentity(at.to_bytes(16, "big"), f"l{at}", "there"), "a")
        with pytest.raises(Invalid, match="write into scope a, which is the limit"):
            await table.passive(LinkIdentity(ID, "one-more", "there"), "a")
        await table.passive(LinkIdentity(ID, "one-more", "there"), "b")
        with pytest.raises(Invalid, match="no link plant of this installation has that id"):
            await table.passive(LinkIdentity(b"\xee" * 16, "plant", "here"), "c")
        assert len(await table.list()) == MAX_PASSIVE_LINKS_OF_SCOPE + 1

    run(work())


def test_a_link_that_writes_here_is_listed_with_its_scopes() -> None:
    async def work() -> None:
        table = LinkTable(FakeTables(), "here", lambda: 9)
        await table.create(LINK)
        await table.passive(LinkIdentity(ID, "plant", "here"), "a")  # a link of this installation: no other row
        other = LinkIdentity(b"\xab" * 16, "plant", "there")
        for scope in ("b", "a", "b"):
            await table.passive(other, scope)
        passive = (await table.list())[1]
        assert (passive.name, passive.role, passive.created_ms) == ("plant-abababab", LinkRole.PASSIVE, 9)
        assert passive.peer_installation == "there"
        assert await table.scopes(ID) == ["a"]
        assert await table.scopes(other.link_id) == ["a", "b"]
        with pytest.raises(Invalid, match="where it runs"):
            await table.change(passive, SETTINGS)
        await table.delete(passive)
        assert await table.scopes(other.link_id) == []
        assert [one.name for one in await table.list()] == ["plant"]
        with pytest.raises(Invalid, match="small letters"):
            await table.passive(replace(other, name="../x"), "a")
        long = replace(other, name="x" * 48)
        await table.passive(long, "a")
        await table.passive(replace(long, link_id=b"\xcd" * 16), "a")
        for one in await table.list():
            check_name(one.name)

    run(work())


def test_the_job_of_a_link_has_an_internal_stream() -> None:
    assert str(job_of("plant")) == "_system/_link-plant/link/plant"
    job_of("x" * 48).check()
