"""ZooKeeper's nodes in memory, with faults: a call is done and its answer lost, or it is not done."""

from __future__ import annotations

from sarit.coordination.port import Versioned
from sarit.core.errors import Conflict, Exists, NotFound, Unavailable


class MemoryNodes:
    """As `coordination.zookeeper.ZooKeeper`, as far as ledgers need it."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.numbers: dict[str, int] = {}
        self.fail: dict[str, bool] = {}  # name of a call -> whether it is done all the same
        self.watches: list[tuple[str, object]] = []
        self.calls: list[str] = []

    def _begin(self, call: str, path: str) -> bool:
        """Whether the answer is lost.  Raises Unavailable: it is not done."""
        self.calls.append(f"{call} {path}")
        if call not in self.fail:
            return False
        if self.fail.pop(call):
            return True
        raise Unavailable("ZooKeeper is away")

    async def get(self, path):
        assert not self._begin("get", path)
        found = self.nodes.get(path)
        return None if found is None else Versioned(*found)

    async def create(self, path, value, ephemeral=False, sequence=False, parents=False, shared=False):
        lost = self._begin("create", path)
        if sequence:
            number = self.numbers.get(path, 0)
            self.numbers[path] = number + 1
            # ZooKeeper's counter has 32 bits and a sign.
            path += f"{(number + (1 << 31)) % (1 << 32) - (1 << 31):010d}"
        if path in self.nodes:
            raise Exists(path)
        self.nodes[path] = (value, 0)
        if lost:
            raise Unavailable("the answer is lost")
        return path

    async def set(self, path, value, expected):
        lost = self._begin("set", path)
        if path not in self.nodes:
            raise NotFound(path)
        if expected is not None and self.nodes[path][1] != expected:
            raise Conflict(path)
        self.nodes[path] = (value, self.nodes[path][1] + 1)
        if lost:
            raise Unavailable("the answer is lost")
        return self.nodes[path][1]

    async def delete(self, path, expected=None):
        self._begin("delete", path)
        if path not in self.nodes:
            raise NotFound(path)
        if expected is not None and self.nodes[path][1] != expected:
            raise Conflict(path)
        del self.nodes[path]

    async def children(self, path):
        self._begin("children", path)
        names = {node[len(path) + 1 :].partition("/")[0] for node in self.nodes if node.startswith(f"{path}/")}
        return sorted(names)

    def watch_children(self, path, changed):
        watch = (path, changed)
        self.watches.append(watch)
        nodes = self

        class Watch:
            def close(self):
                nodes.watches.remove(watch)

        return Watch()

    def changed(self, path) -> None:
        for each, call in self.watches:
            if each == path:
                call()
