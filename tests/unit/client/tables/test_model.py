"""A table against a dict, through the public client on a node, in random order of operations."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import sarit
from sarit.client.blocking.loop_thread import LoopThread
from sarit.env.real import real_env
from sarit.process.settings import NodeConfig
from sarit.process.standalone import open_node
from sarit.store.store import StoreLimits
from sarit.store.tiering.checkpoint import FlushLimits
from tests.limits import HANG_SECONDS, examples

PARTS = st.sampled_from([b"a", b"b", b"\0", b"\xff"])
KEYS = st.tuples(PARTS, PARTS)
VALUES = st.binary(max_size=4)
BATCHES = st.lists(
    st.tuples(PARTS, VALUES, st.sampled_from(["put", "insert", "replace", "stale"])), min_size=1, max_size=5
)


class Model(RuleBasedStateMachine):
    """`state`: key -> (value, version); versions that a key once had must never be taken again."""

    client: sarit.Client
    number = 0

    seen = Bundle("seen")

    @initialize()
    def create(self):
        type(self).number += 1
        name = f"s/t{self.number}"
        assert self.client.tables.create(name, primary_key_bytes=1, secondary_key_bytes=1, partitions=3)
        self.table = self.client.table(name)
        self.state = {}

    @rule(target=seen, key=KEYS, value=VALUES)
    def put(self, key, value):
        version = self.table.put(key, value)
        assert version > self.state.get(key, (b"", -1))[1]
        self.state[key] = value, version
        return key, version

    @rule(key=KEYS, value=VALUES)
    def insert(self, key, value):
        if key in self.state:
            with pytest.raises(sarit.Conflict):
                self.table.insert(key, value)
        else:
            self.state[key] = value, self.table.insert(key, value)

    @rule(known=consumes(seen), value=VALUES)
    def replace(self, known, value):
        key, version = known
        if self.state.get(key, (b"", -1))[1] == version:
            self.state[key] = value, self.table.replace(key, value, version)
        else:
            with pytest.raises(sarit.Conflict):
                self.table.replace(key, value, version)

    @rule(known=consumes(seen))
    def remove_version(self, known):
        key, version = known
        if self.state.get(key, (b"", -1))[1] == version:
            self.table.remove(key, version)
            del self.state[key]
        else:
            with pytest.raises(sarit.Conflict):
                self.table.remove(key, version)

    @rule(key=KEYS)
    def remove(self, key):
        self.table.remove(key)
        self.state.pop(key, None)

    @rule(primary=PARTS, batch=BATCHES)
    def update(self, primary, batch):
        changes, holds = [], True
        for secondary, value, kind in batch:
            key = primary, secondary
            have = self.state.get(key)
            if kind == "put":
                changes.append(sarit.Put(key, value))
            elif kind == "insert":
                changes.append(sarit.Insert(key, value))
                holds &= have is None
            else:
                version = (0 if have is None else have[1]) + (kind == "stale")
                changes.append(sarit.Replace(key, value, version))
                holds &= have is not None and have[1] == version
        if not holds:
            with pytest.raises(sarit.Conflict):
                self.table.update(changes)
            return
        versions = self.table.update(changes)
        for change, version in zip(changes, versions, strict=True):
            self.state[change.key] = change.value, version

    @rule(primary=PARTS)
    def remove_all_of(self, primary):
        keys = [key for key in self.state if key[0] == primary]
        if keys:
            assert self.table.update(sarit.Remove(key, self.state.pop(key)[1]) for key in keys) == [-1] * len(keys)

    @rule(items=st.lists(st.tuples(KEYS, VALUES), max_size=20))
    def put_many(self, items):
        for (key, value), version in zip(items, self.table.put_many(items), strict=True):
            self.state[key] = value, version

    @rule(keys=st.lists(KEYS, max_size=20))
    def get_many(self, keys):
        found = [None if each is None else (each.value, each.version) for each in self.table.get_many(keys)]
        assert found == [self.state.get(key) for key in keys]

    @rule(first=PARTS, last=PARTS, primary=st.none() | PARTS, size=st.integers(1, 5))
    def scan(self, first, last, primary, size):
        found = list(self.table.scan(primary, first=first, last=last, page_entries=size))
        keys = [
            key for key in sorted(self.state)
            if (first <= key[0] <= last if primary is None else key[0] == primary and first <= key[1] <= last)
        ]  # fmt: skip
        assert [(each.key, each.value, each.version) for each in found] == [(key, *self.state[key]) for key in keys]

    @invariant()
    def all_is_there(self):
        if hasattr(self, "state"):
            found = {each.key: (each.value, each.version) for each in self.table.scan(page_entries=3)}
            assert found == self.state
            keys = [(each.key, each.version) for each in self.table.scan_keys()]
            assert keys == [(key, self.state[key][1]) for key in sorted(self.state)]


def test_table_behaves_as_a_dict_with_versions(tmp_path):
    thread = LoopThread("node")
    limits = StoreLimits(flush=FlushLimits(interval_seconds=0.02))  # entries move from memory to the index all the time
    config = NodeConfig(str(tmp_path / "node"), controller_port=0, store_port=0, limits=limits).validated()

    async def start():
        node = await open_node(config, real_env())
        await node.start()
        return node

    node = thread.run(start())

    try:
        with sarit.connect(f"127.0.0.1:{node.controller_port}") as client:
            client.create_scope("s")
            Model.client, Model.number = client, 0
            run_state_machine_as_test(
                Model,
                settings=settings(max_examples=examples(25), stateful_step_count=25),
            )
    finally:
        thread.run(asyncio.wait_for(node.stop(), HANG_SECONDS))
        thread.close()
