"""The generated part of the blocking client is what the generator makes of the asyncio classes as they are now."""

import ast
import inspect
from dataclasses import replace

import pytest

import sarit
from tools import generate_blocking
from tools.blocking_manifest import MODULES

FACADES = [facade for module in MODULES for facade in module.facades]


def test_generated_files_are_not_stale() -> None:
    stale = [path.name for path, text in generate_blocking.generated().items() if path.read_text() != text]
    assert not stale, f"run `make generate`: {', '.join(stale)} differ from what the asyncio classes give"


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
