"""The calls of full-text search on a node: families that are made late, and what they cost a node without searches."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from sarit.env.real import real_env
from sarit.process.late_calls import late_calls
from sarit.process.search.calls import FAMILIES, SearchFamilies
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_methods import SEARCH


class Family:
    def __init__(self, world):
        self.world = world
        self.closed = False

    async def search(self, request):
        return pb.SearchResponse(total=len(request.stream))

    def samples(self):
        yield "searched", (), 1

    async def close(self):
        self.closed = True


def test_first_call_makes_its_family_once(monkeypatch):
    made = []

    def family(world):
        made.append(Family(world))
        return made[-1]

    module = ModuleType("tests.a_family")
    module.family = family
    monkeypatch.setitem(sys.modules, module.__name__, module)

    async def main():
        world = SimpleNamespace(env=real_env())
        families = SearchFamilies(world, {"search": module.__name__})
        calls = late_calls(SEARCH, families.family)
        assert not made
        assert not list(families.samples())
        request = pb.SearchRequest(stream="abc")
        replies = await asyncio.gather(*(calls.search(request) for _ in range(5)))
        assert {reply.total for reply in replies} == {3}
        (only,) = made
        assert only.world is world
        assert list(families.samples()) == [("searched", (), 1)]
        await families.close()
        assert only.closed

    asyncio.run(main())


def test_call_of_no_family_is_answered_as_one_that_is_not_known():
    async def main():
        calls = late_calls(SEARCH, SearchFamilies(SimpleNamespace(env=real_env()), {}).family)
        for name in SEARCH:
            with pytest.raises(NotImplementedError, match="Method not found"):
                await getattr(calls, name)(None)
        assert not hasattr(calls, "found")

    asyncio.run(main())


def test_calls_have_the_names_by_which_metrics_show_them():
    calls = late_calls(SEARCH, SearchFamilies(SimpleNamespace(env=real_env()), {}).family)
    assert {getattr(calls, name).__name__ for name in SEARCH} == set(SEARCH)


def test_each_family_serves_calls_that_there_are():
    assert set(FAMILIES) <= set(SEARCH)


def test_node_that_is_not_searched_imports_nothing_of_it():
    program = (
        "import sys, sarit.process.standalone, sarit.process.worker_role, sarit.process.child\n"
        "print(*[one for one in sys.modules if one.startswith(('sarit.search', 'tantivy'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
