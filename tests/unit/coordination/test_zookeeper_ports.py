"""Members on ZooKeeper: what is believed of a membership when events come at a bad time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sarit.coordination.port import MemberState
from sarit.coordination.zookeeper import ZooKeeper
from sarit.coordination.zookeeper_ports import ZooKeeperMembers, ZooKeeperMembership
from sarit.core.errors import Unavailable
from sarit.env.real import real_env


class Answer:
    """An answer of kazoo that comes when the test says so."""

    def rawlink(self, done):
        self.done = done

    def come(self, value):
        self.done(SimpleNamespace(exception=None, value=value))


def test_member_does_not_join_when_its_session_ends_with_the_answer():
    """The next session is valid at once, and the node went with the one before."""

    async def main():
        zookeeper = ZooKeeper("127.0.0.1:1", 6.0, real_env())
        answer = Answer()
        zookeeper._client = SimpleNamespace(create_async=lambda *_, **__: answer)
        zookeeper._loop = asyncio.get_running_loop()
        zookeeper.connected.set()
        states = []
        joining = asyncio.ensure_future(ZooKeeperMembers(zookeeper, "/members").join("a", b"", states.append))
        await asyncio.sleep(0)
        answer.come(("/members/a", SimpleNamespace(czxid=7)))
        zookeeper._post(zookeeper._on_state, "LOST", False)
        with pytest.raises(Unavailable, match="session"):
            await joining
        assert not zookeeper._memberships

    asyncio.run(main())


class SlowReads:
    """A session whose reads of a node's creation are answered by the test."""

    def __init__(self):
        self.reads = []

    def add_membership(self, membership):
        self.membership = membership

    def watch(self, path, changed):
        self.changed = changed
        return SimpleNamespace(close=lambda: None)

    def creation(self, path):
        self.reads.append(asyncio.get_running_loop().create_future())
        return self.reads[-1]


def test_member_that_is_replaced_while_it_checks_its_node_checks_again():
    async def main():
        session, states = SlowReads(), []
        membership = ZooKeeperMembership(session, "/members/a", 7, states.append)
        session.changed()
        await asyncio.sleep(0)
        # Another process takes the place after this read was answered, and before the answer comes.
        session.changed()
        session.reads[0].set_result((7, 0))
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(session.reads) == 2
        session.reads[1].set_result((9, 0))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (membership.state, states) == (MemberState.LOST, [MemberState.LOST])

    asyncio.run(main())
