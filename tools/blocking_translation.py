"""An asyncio method body as a blocking one; used by `tools/generate_blocking.py`, which says when."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.blocking_manifest import Facade

Method = ast.FunctionDef | ast.AsyncFunctionDef


class Translation(ast.NodeTransformer):
    """An asyncio body as a blocking one: what is awaited runs on the loop, all else on the caller's thread."""

    def __init__(self, methods: set[str], facade: Facade) -> None:
        self._methods = methods
        self._facade = facade

    def body(self, method: Method) -> list[ast.stmt]:
        """The statements, without the docstring."""
        skipped = 1 if ast.get_docstring(method) is not None else 0
        return [self.visit(statement) for statement in method.body[skipped:]]

    def _own(self, node: ast.expr) -> bool:
        """Whether it calls a method that the blocking class has, too."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return name in self._methods
        return False

    def visit_Await(self, node: ast.Await) -> ast.expr:
        if self._own(node.value):
            visited: ast.expr = self.visit(node.value)
            return visited
        return _call("self._run", _inner(node.value))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.stmt:
        iterator = self.visit(node.iter) if self._own(node.iter) else _call("self._thread.iterate", _inner(node.iter))
        return self.visit_For(ast.For(node.target, iterator, node.body, node.orelse), visited=True)

    def visit_For(self, node: ast.For, *, visited: bool = False) -> ast.stmt:
        if not visited:
            node.iter = self.visit(node.iter)
        match node.target, node.body:
            case ast.Name(id=item), [ast.Expr(value=ast.Yield(value=ast.Name(id=given)))] if item == given:
                return ast.Expr(ast.YieldFrom(node.iter))
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.stmt:
        raise ValueError(f"{self._facade.name}: `async with` cannot be translated (line {node.lineno})")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self._facade.posted and not self._own(
                node
            ):
                return _call("self._thread.call", _inner(node.func))
        visited: ast.expr = self.generic_visit(node)  # type: ignore[assignment]
        return visited

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        match node.value:
            case ast.Name(id="self") if node.attr in self._methods:
                return node
        visited: ast.expr = self.generic_visit(node)  # type: ignore[assignment]
        return visited

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _expression("self._inner") if node.id == "self" else node


class _ToInner(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _expression("self._inner") if node.id == "self" else node


def _inner(node: ast.expr) -> ast.expr:
    visited: ast.expr = _ToInner().visit(node)
    return visited


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _call(function: str, argument: ast.expr) -> ast.expr:
    return ast.Call(_expression(function), [argument], [])
