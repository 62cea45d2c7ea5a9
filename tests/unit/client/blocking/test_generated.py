"""The generator of the blocking client.  `tests/test_tidy.py` checks that its files are current."""

import ast
import inspect
from dataclasses import replace

import pytest

import sarit
from tools import generate_blocking
from tools.blocking_manifest import MODULES

FACADES = [facade for module in MODULES for facade in module.facades]


def test_changed_asyncio_class_makes_its_generated_file_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    read = generate_blocking.read
    name = "sarit.client.streams.event_time"
    changed = read(name).replace("async def at(self, position: StreamCut)", "async def at(self, place: StreamCut)")
    assert changed != read(name)
    monkeypatch.setattr(generate_blocking, "read", lambda module: changed if module == name else read(module))
    assert [path.name for path in generate_blocking.stale()] == ["handles.py"]


def test_manifest_refuses_names_that_the_class_does_not_have() -> None:
    known = next(facade for facade in FACADES if facade.name == "ByteReader")
    renamed = replace(known, hidden={**known.hidden, "refill": "it is called so no more"})
    with pytest.raises(AssertionError, match="ByteReader has no refill"):
        generate_blocking.Generated(renamed, generate_blocking.Names(MODULES[0]))


@pytest.mark.parametrize("name", ["Client", "EventReader", "GroupReader", "Stream", "Table", "Transaction"])
def test_every_public_method_has_a_docstring(name: str) -> None:
    found = vars(getattr(sarit, name)).items()
    methods = {method: value for method, value in found if inspect.isfunction(value) and not method.startswith("_")}
    assert methods
    assert [method for method, value in methods.items() if not value.__doc__] == []


def test_translation_awaits_on_the_loop_and_yields_on_the_callers_thread() -> None:
    asyncio_body = """
async def f(self):
    async for page in self.pages(self.left):
        for one in page:
            yield one
    await self.g(await self.hidden())
"""
    method = ast.parse(asyncio_body).body[0]
    assert isinstance(method, ast.AsyncFunctionDef)
    found = generate_blocking.Translation({"f", "g"}, generate_blocking.Facade("m", "C")).body(method)
    assert [ast.unparse(ast.fix_missing_locations(statement)) for statement in found] == [
        "for page in self._thread.iterate(self._inner.pages(self._inner.left)):\n    yield from page",
        "self.g(self._run(self._inner.hidden()))",
    ]
