"""Generate the blocking client from the asyncio classes.

    python -m tools.generate_blocking            write src/sarit/client/blocking/*.py
    python -m tools.generate_blocking --check    exit 1 when a generated file is stale

A blocking object holds the asyncio object (`_inner`) and the thread of its event loop (`_thread`).  For each public
method of an asyncio class there is one method of the same name, signature and docstring:

    asyncio                                 blocking
    async def f(self, a) -> T               return self._run(self._inner.f(a))
    async def f(self) -> Handle             return Handle(self._thread, self._run(self._inner.f()))
    def f(self) -> AsyncIterator[T]         return self._thread.iterate(self._inner.f())
    def f(self) -> T, and properties        return self._inner.f()
    async with                              with

An `Iterable` argument becomes a list on the caller's thread, since a user's iterator may itself call the client.
A method that hands out what was read is not delegated but *translated*: its body runs on the caller's thread, and only
what it awaits runs on the loop.  So a call that Ctrl-C interrupts has consumed nothing.  For the same reason iterators
take lists on the loop, and items from them on the caller's thread (`LoopThread.iterate`): they cross the threads once
per batch, not once per event.

`tools/blocking_manifest.py` lists the classes and every exception from these rules, with its reason.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.blocking_manifest import MODULES, Facade, Module
from tools.blocking_translation import Method, Translation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "sarit.client.blocking"
OVERRIDES = f"{PACKAGE}.overrides"
ITERATORS = ("AsyncIterator", "AsyncGenerator")


def path_of(module: str) -> Path:
    """The source of a module of the package."""
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


def read(module: str) -> str:
    """The text of a module."""
    return path_of(module).read_text()


@dataclass(frozen=True)
class Import:
    """One name of an import statement; `name` None: the module itself."""

    module: str
    name: str | None

    def statement(self, alias: str) -> str:
        """The statement that binds it to `alias`."""
        renamed = "" if alias == (self.name or self.module) else f" as {alias}"
        return (
            f"import {self.module}{renamed}" if self.name is None else f"from {self.module} import {self.name}{renamed}"
        )


class Source:
    """One parsed module: its classes, and where the names come from that it uses."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.text = read(module)
        self.tree = ast.parse(self.text)
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}
        self.type_variables: dict[str, str] = {}
        self.names: dict[str, Import] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.names.update({alias.asname or alias.name: Import(node.module, alias.name) for alias in node.names})
            elif isinstance(node, ast.Import):
                self.names.update({alias.asname or alias.name: Import(alias.name, None) for alias in node.names})
        for node in self.tree.body:
            self._define(node)

    def _define(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="TypeVar"))):
                self.type_variables[name] = ast.unparse(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                self.names[name] = Import(self.module, name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.names[name] = Import(self.module, name)

    def parameters(self, method: Method) -> str:
        """The parameters as they are written, in parentheses."""
        assert method.returns is not None
        lines = self.text.splitlines()[method.lineno - 1 : method.returns.lineno]
        lines[-1] = lines[-1].encode()[: method.returns.col_offset].decode()
        head = "\n".join(lines)
        return head[head.index("(") : head.rindex("->")].strip()

    def doc(self, node: ast.ClassDef | Method) -> str:
        """The docstring as it is written, quotes included; "" when there is none."""
        return self.string(node.body[0]).replace("`await ", "`")

    def string(self, node: ast.stmt) -> str:
        """A string that is a statement, as it is written; "" for any other statement."""
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as constant):
                return ast.get_source_segment(self.text, constant) or ""
        return ""


class Names:
    """The names that a generated module uses, and with them its imports."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._runtime: dict[str, Import] = {}
        self._typing: dict[str, Import] = {}
        self.type_variables: dict[str, str] = {}

    def add(self, alias: str, found: Import, *, runtime: bool) -> None:
        """Import a name; `runtime` False: for annotations alone."""
        if found.module == f"{PACKAGE}.{self._module.name}":
            return
        other = self._runtime.get(alias) or self._typing.get(alias)
        assert other in (None, found), f"{self._module.name}: {alias} is {other} and {found}"
        (self._runtime if runtime else self._typing)[alias] = found

    def use(self, source: Source, node: ast.AST, *, runtime: bool) -> None:
        """Import every name in `node` that is neither local nor built in."""
        for found in ast.walk(node):
            if isinstance(found, ast.Constant) and isinstance(found.value, str) and not runtime:
                continue
            if isinstance(found, ast.Name):
                self._use(source, found.id, runtime=runtime)

    def _use(self, source: Source, name: str, *, runtime: bool) -> None:
        if name in source.type_variables:
            self.type_variables[name] = source.type_variables[name]
            self.add("TypeVar", Import("typing", "TypeVar"), runtime=True)
        elif name in HOMES and source.module != OVERRIDES:
            self.add(name, Import(HOMES[name], name), runtime=runtime)
        elif name == "Iterator":
            self.add(name, Import("collections.abc", name), runtime=runtime)
        elif name in source.names:
            self.add(name, source.names[name], runtime=runtime)
        elif runtime or hasattr(builtins, name):
            return  # local or built in
        else:
            raise ValueError(f"{source.module}: where does {name} come from?")

    def lines(self) -> Iterator[str]:
        """The import statements."""
        typing = {alias: found for alias, found in self._typing.items() if alias not in self._runtime}
        if typing:
            yield "from typing import TYPE_CHECKING"
        yield from (found.statement(alias) for alias, found in self._runtime.items())
        if typing:
            yield "if TYPE_CHECKING:"
            yield from (f"    {found.statement(alias)}" for alias, found in typing.items())


HOMES = {facade.name: f"{PACKAGE}.{module.name}" for module in MODULES for facade in module.facades}


def _root(annotation: ast.expr | None) -> str:
    match annotation:
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return name
    return ""


def _is_property(method: Method) -> bool:
    return any(isinstance(found, ast.Name) and found.id == "property" for found in method.decorator_list)


def _blocking_annotation(annotation: ast.expr) -> ast.expr:
    match annotation:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[first, *_])) if name in ITERATORS:
            return ast.Subscript(ast.Name("Iterator"), first)
        case ast.Subscript(value=ast.Name(id=name), slice=item) if name in ITERATORS:
            return ast.Subscript(ast.Name("Iterator"), item)
    return annotation


def _own_names(methods: Mapping[str, Method], overrides: Source | None, name: str) -> set[str]:
    """The methods that a blocking class defines itself."""
    return {*methods, *(_public_methods(overrides, f"{name}Overrides") if overrides is not None else ())}


def _public_methods(source: Source, name: str) -> dict[str, Method]:
    return {
        node.name: node
        for node in source.classes[name].body
        if isinstance(node, Method)
        and (not node.name.startswith("_") or node.name in ("__aiter__", "__aexit__", "__call__"))
    }


class Generated:
    """The text of one blocking class."""

    def __init__(self, facade: Facade, names: Names) -> None:
        self._facade = facade
        self._names = names
        self._source = Source(facade.source)
        found = _public_methods(self._source, facade.name)
        attributes = {
            node.attr for node in ast.walk(self._source.classes[facade.name]) if isinstance(node, ast.Attribute)
        }
        unknown = {*facade.hidden, *facade.listed()} - {*found, *attributes}
        assert not unknown, f"{facade.source}.{facade.name} has no {', '.join(sorted(unknown))}: amend the manifest"
        self._overrides = Source(OVERRIDES) if facade.overrides else None
        self.methods = {name: node for name, node in found.items() if name not in facade.not_delegated()}

    def text(self) -> str:
        """The class."""
        facade, node = self._facade, self._source.classes[self._facade.name]
        for base in node.bases:
            self._names.use(self._source, base, runtime=True)
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        doc = f'"""{facade.doc}"""' if facade.doc else self._source.doc(node)
        return "\n".join(
            [
                *self._guard(node),
                f"class {facade.name}({bases}):",
                f"    {doc}",
                *self._init(node),
                *self._properties(),
                *self._methods(),
            ]
        )

    def _guard(self, node: ast.ClassDef) -> Iterator[str]:
        """The guard of the asyncio class, with the methods that this class has, too."""
        (decorator,) = (found for found in node.decorator_list if isinstance(found, ast.Call))
        self._names.use(self._source, decorator.func, runtime=True)
        (session,) = (found.value for found in decorator.args if isinstance(found, ast.Constant))
        own = {name for name in _own_names(self.methods, self._overrides, self._facade.name)}
        arguments = [repr("_inner." + str(session))]
        for keyword in decorator.keywords:
            assert isinstance(keyword.value, ast.Tuple)
            names = [one.value for one in keyword.value.elts if isinstance(one, ast.Constant) and one.value in own]
            if names:
                arguments.append(f"{keyword.arg}={tuple(names)!r}")
        yield f"@guarded({', '.join(arguments)})"

    def _init(self, node: ast.ClassDef) -> Iterator[str]:
        inner = f"Aio{self._facade.name}"
        self._names.add(inner, Import(self._facade.source, self._facade.name), runtime=False)
        self._names.add("LoopThread", Import(f"{PACKAGE}.loop_thread", "LoopThread"), runtime=False)
        inner += self._parameters()
        yield f"    def __init__(self, thread: LoopThread, inner: {inner}) -> None:"
        yield "        self._thread = thread"
        yield "        self._run = thread.run"
        yield "        self._inner = inner"
        for attribute, name in self._facade.handles.items():
            self._names.add(name, Import(HOMES[name], name), runtime=True)
            yield f"        self._{attribute} = {name}(thread, inner.{attribute})"
        if self._overrides is not None:
            name = f"{self._facade.name}Overrides"
            self._names.add(name, Import(OVERRIDES, name), runtime=True)
            yield f"        self._overrides = {name}(thread, inner)"
            if self._facade.direct:
                direct = ", ".join(f"{method}=inner.{method}" for method in self._facade.direct)
                yield "        # The same bound methods: another call per event would cost as much as the write."
                yield f"        vars(self).update({direct})"
        yield "    def __repr__(self) -> str:"
        yield "        return repr(self._inner)"

    def _parameters(self) -> str:
        """The type parameters of the class in brackets; "" when it has none."""
        bases = self._source.classes[self._facade.name].bases
        found = ", ".join(ast.unparse(base.slice) for base in bases if isinstance(base, ast.Subscript))
        return f"[{found}]" if found else ""

    def _properties(self) -> Iterator[str]:
        for name, (annotation, doc) in self._facade.attributes.items():
            self._names.use(self._source, ast.parse(annotation), runtime=False)
            yield "    @property"
            yield f"    def {name}(self) -> {annotation}:"
            yield f'        """{doc}"""'
            yield f"        return self._inner.{name}"

    def _methods(self) -> Iterator[str]:
        for name, method in self.methods.items():
            if name == "__aexit__":
                yield f"    def __enter__(self) -> {self._facade.name}{self._parameters()}:"
                yield "        return self"
            yield from self._head(self._source, method)
            yield from self._body(name, method)
        if self._overrides is not None:
            for name, method in _public_methods(self._overrides, f"{self._facade.name}Overrides").items():
                yield from self._head(self._overrides, method)
                yield f"        {_return(method)}self._overrides.{name}({_passed(method, copied=False)})"

    def _head(self, source: Source, method: Method) -> Iterator[str]:
        annotations = [argument.annotation for argument in ast.walk(method.args) if isinstance(argument, ast.arg)]
        assert method.returns is not None
        returns = _blocking_annotation(method.returns)
        for annotation in [*annotations, returns]:
            if annotation is not None:
                self._names.use(source, annotation, runtime=False)
        for default in [*method.args.defaults, *method.args.kw_defaults]:
            if default is not None:
                self._names.use(source, default, runtime=True)
        if _is_property(method):
            yield "    @property"
        name = {"__aiter__": "__iter__", "__aexit__": "__exit__"}.get(method.name, method.name)
        yield f"    def {name}{source.parameters(method)} -> {ast.unparse(returns)}:"
        if doc := self._facade.docs.get(method.name):
            yield f'        """{doc}"""'
        elif doc := source.doc(method):
            yield f"        {doc}"

    def _body(self, name: str, method: Method) -> Iterator[str]:
        facade = self._facade
        called = f"self._inner.{name}"
        arguments = _passed(method, copied=isinstance(method, ast.AsyncFunctionDef))
        returns = _root(method.returns)
        result = f"{called}({arguments})"
        if name == "__aiter__":
            yield "        return self._thread.iterate(aiter(self._inner))"
            return
        if name in facade.translated or (name == "__aexit__" and name not in facade.delegated):
            translated = Translation({*self.methods, *facade.overrides}, facade).body(method)
            for statement in translated:
                self._names.use(self._source, statement, runtime=True)
                yield "\n".join(
                    f"        {line}" for line in ast.unparse(ast.fix_missing_locations(statement)).splitlines()
                )
            return
        if name in facade.lazy:
            yield f"        from {HOMES[returns]} import {returns}"
            yield f"        return {returns}(self._thread, {called})"
            return
        if _is_property(method):
            yield f"        return self._{name}" if name in facade.handles else f"        return {called}"
            return
        if name in facade.posted:
            yield f"        self._thread.call({called})"
            return
        if name in facade.on_loop:
            yield f"        {_return(method)}self._thread.call_and_wait({', '.join(filter(None, [called, arguments]))})"
            return
        if returns in ITERATORS:
            result = f"self._thread.iterate({result})"
        elif isinstance(method, ast.AsyncFunctionDef):
            result = f"self._run({result})"
        elif name in facade.opened:
            result = f"self._run({result}.open())"
        if returns in HOMES:
            self._names.add(returns, Import(HOMES[returns], returns), runtime=True)
            result = f"{returns}(self._thread, {result})"
        yield f"        {_return(method)}{result}"


def _return(method: Method) -> str:
    nothing = isinstance(method.returns, ast.Constant) and method.returns.value is None
    return "" if nothing else "return "


def _passed(method: Method, *, copied: bool) -> str:
    """The arguments of a method, as a call passes them on; `copied`: iterables as lists."""
    given = method.args

    def one(argument: ast.arg) -> str:
        return f"list({argument.arg})" if copied and _root(argument.annotation) == "Iterable" else argument.arg

    passed = [one(argument) for argument in [*given.posonlyargs, *given.args][1:]]
    passed += [f"*{given.vararg.arg}"] if given.vararg else []
    return ", ".join(passed + [f"{argument.arg}={one(argument)}" for argument in given.kwonlyargs])


def generate(module: Module) -> str:
    """The text of one blocking module, before ruff."""
    names = Names(module)
    classes = [Generated(facade, names).text() for facade in module.facades]
    sources = ", ".join(dict.fromkeys(path_of(facade.source).relative_to(ROOT).as_posix() for facade in module.facades))
    head = [
        "# Generated by tools/generate_blocking.py; do not edit.  Run `make generate` instead.  Made from:",
        *(f"# {source}" for source in sources.split(", ")),
        f'"""{module.doc}"""',
        "from __future__ import annotations",
        *names.lines(),
        "",
        *names.type_variables.values(),
    ]
    return "\n".join([*head, *classes, ""])


def _ruff(text: str, path: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(path), "-"],
        input=text, capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{path.name}: {done.stderr}"
    return done.stdout


def generated() -> dict[Path, str]:
    """Every generated file with its text, in ruff's format."""
    found: dict[Path, str] = {}
    for module in MODULES:
        path = path_of(f"{PACKAGE}.{module.name}")
        text = _ruff(generate(module), path, "format")
        found[path] = _ruff(_ruff(text, path, "check", "--fix"), path, "format")
    return found


def stale() -> list[Path]:
    """The generated files that are not what the asyncio classes give now."""
    return [path for path, text in generated().items() if not path.exists() or path.read_text() != text]


def main() -> None:
    """Write the files, or with `--check` only compare them."""
    if "--check" in sys.argv[1:]:
        found = stale()
        for path in found:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run make generate\n")
        sys.exit(1 if found else 0)
    for path, text in generated().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
