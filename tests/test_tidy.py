"""Style as a test: banned calls and retired words with what to use instead, and bounds on sizes.

The world (clocks, chance, files, threads, sockets) is reached through `sarit.env` alone, so that the simulation
can run everything else.  A file that must break a rule is listed here with the reason.
"""

from __future__ import annotations

import ast
import functools
import gc
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vocabulary import ALLOWED_IDENTIFIERS, ALLOWED_PLACES, RETIRED, RETIRED_PROSE
from tools import generate_blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
SIZED = ("src", "simulation", "checkers", "benchmarks", "examples", "tests", "tools")

MAX_FUNCTION_LINES = 70
MAX_MODULE_LINES = 600  # a state machine stays in one module
MAX_CLASS_METHODS = 25

# Dotted name (or prefix that ends with a dot) -> what to use instead.
BANNED: dict[str, str] = {
    "time.": "env.clock (monotonic, wall_ms), or loop.call_later for a delay",
    "datetime.datetime.now": "env.clock.wall_ms()",
    "datetime.datetime.utcnow": "env.clock.wall_ms()",
    "datetime.date.today": "env.clock.wall_ms()",
    "random.": "env.random",
    "secrets.": "env.random.bytes",
    "os.urandom": "env.random.bytes",
    "uuid.uuid1": "env.random.bytes(16)",
    "uuid.uuid4": "env.random.bytes(16)",
    "open": "env.files.open on a worker",
    "io.open": "env.files.open on a worker",
    "os.open": "env.files.open on a worker",
    "os.fsync": "env.files (datasync, sync_dir)",
    "os.fdatasync": "File.datasync",
    "os.rename": "env.files.rename, then sync_dir",
    "os.replace": "env.files.rename, then sync_dir",
    "os.unlink": "env.files.remove, then sync_dir",
    "os.remove": "env.files.remove, then sync_dir",
    "os.makedirs": "env.files.make_dirs",
    "os.mkdir": "env.files.make_dirs",
    "shutil.": "env.files",
    "tempfile.": "env.files",
    "threading.Thread": "env.threads.worker",
    "concurrent.futures.ThreadPoolExecutor": "env.threads.worker",
    "asyncio.to_thread": "env.threads.worker(...).run",
    "socket.socket": "env.network",
    "asyncio.open_connection": "env.network.connect",
    "asyncio.start_server": "env.network.serve",
    "print": "logging, or click.echo in cli/",
}

# Name of an import -> the distribution that gives it, where that is named otherwise.
DISTRIBUTIONS = {"argon2": "argon2-cffi", "google": "protobuf", "jwt": "pyjwt", "opentelemetry": "opentelemetry-sdk"}

# Path under src/ (or a folder, with a slash at the end) -> banned names it may use, and why.
ALLOWED: dict[str, tuple[set[str], str]] = {
    "sarit/env/real.py": (set(BANNED), "it is the border to the operating system"),
    "sarit/env/real_files.py": (set(BANNED), "it is the border to the operating system"),
    "sarit/env/rotating_file.py": (
        {"os.open", "os.rename"},
        "it is a part of the border: an audit log of many processes",
    ),
    "sarit/env/standard_files.py": ({"open", "os.open"}, "it is before everything: descriptors 0 to 2"),
    "sarit/env/tls_server.py": ({"socket.socket"}, "it is a part of the border: it accepts connections"),
    "sarit/env/passed_sockets.py": ({"socket.socket"}, "it is a part of the border: systemd passes sockets"),
    "sarit/env/otlp.py": ({"time."}, "it is a border, too: spans need the wall clock in nanoseconds"),
    "sarit/cli/top.py": (
        {"shutil.", "concurrent.futures.ThreadPoolExecutor", "time."},
        "it is a loop for a person at a terminal",
    ),
    "sarit/client/blocking/loop_thread.py": (
        {"threading.Thread"},
        "the blocking client's loop has a thread of its own",
    ),
    "sarit/process/child.py": ({"threading.Thread"}, "a child ends with its parent even while its event loop is busy"),
    "sarit/sql/child.py": ({"threading.Thread"}, "a query's process has no Env, and ends with its parent in any case"),
    "sarit/process/search/private_directory.py": (
        {"tempfile."},
        "files of an index that can be downloaded again go to a private directory, where Tantivy writes them",
    ),
    "sarit/process/service_manager.py": (
        {"socket.socket"},
        "datagrams to the service manager; env.network has streams",
    ),
    "sarit/spark/client.py": (
        {"concurrent.futures.ThreadPoolExecutor"},
        "the driver asks about many streams at the same time by the blocking client; Spark has no Env",
    ),
    "sarit/training/loader.py": (
        {"concurrent.futures.ThreadPoolExecutor"},
        "a thread reads ahead by the blocking client; a training process has no Env",
    ),
    "sarit/spark/formats/avro_schema.py": ({"open"}, "the driver reads a schema that the user names; Spark has no Env"),
    "sarit/cli/dev_ca.py": (
        {"datetime.datetime.now", "os.open"},
        "a command that writes certificates for trials; it has no event loop",
    ),
    "sarit/cli/dev_node.py": (
        {"shutil.", "tempfile."},
        "a command that makes and deletes a directory before and after there is an event loop",
    ),
    "sarit/cli/user.py": (
        {"tempfile.", "os.replace", "os.fsync"},
        "a command that changes one small file; it has no event loop",
    ),
    "sarit/env/small_files.py": ({"open"}, "users, keys and passwords are read before there is an Env"),
    "sarit/cli/transfer/": (
        {"os.open", "os.fsync"},
        "files that a user names, written by a command of its own process",
    ),
    "sarit/testing/node.py": ({"shutil.", "tempfile.", "open"}, "it runs beside a user's tests, which have no Env"),
    "sarit/testing/node_main.py": (
        {"threading.Thread", "shutil."},
        "a node ends with the tests that started it even while its event loop is busy",
    ),
    "sarit/process/run.py": ({"print"}, "the line that says the node is ready goes to standard output"),
}


def _is_generated(path: Path) -> bool:
    return path.stem.endswith(("_pb2", "_grpc", "_pb2_grpc")) or "generated" in path.parts


def _modules(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not _is_generated(path)]


@pytest.fixture(scope="module", autouse=True)
def _no_search_for_garbage():
    """Millions of nodes stay until the last test, and have no cycles: to search them took most of the time."""
    gc.disable()
    yield
    _parsed.cache_clear()
    _nodes.cache_clear()
    _names_and_prose.cache_clear()
    gc.enable()


@functools.cache
def _parsed(source: str) -> ast.Module:
    """Parsed once: most tests here look at all modules."""
    return ast.parse(source)


def _tree(path: Path) -> ast.Module:
    return _parsed(path.read_text())


@functools.cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, walked once: most tests here search those of `src`."""
    return tuple(ast.walk(_parsed(source)))


def _imported_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Local name -> dotted name, for every import in the module."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return base and f"{base}.{node.attr}"
    return None


def _rule(name: str) -> str | None:
    head, dot, _ = name.partition(".")
    return next((rule for rule in (name, head + dot) if rule in BANNED and (dot or rule == name)), None)


def banned_uses(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, name, rule) of each banned name that the source mentions, called or passed on."""
    imports = _imported_names(_nodes(source))
    for node in _nodes(source):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        name = _dotted(node)
        if name is None:
            continue
        head, dot, rest = name.partition(".")
        if head not in imports and dot:
            continue  # a local variable's attribute: `worker.open`, `self.time.x`
        full = imports.get(head, head) + dot + rest
        rule = _rule(full)
        if rule:
            yield node.lineno, full, rule


def _may(path: Path, rule: str) -> bool:
    relative = path.relative_to(SOURCE).as_posix()
    return any(
        rule in rules for place, (rules, _) in ALLOWED.items() if relative == place or relative.startswith(place)
    )


def test_the_world_is_reached_through_env_alone() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}: use {BANNED[rule]}"
        for path in _modules("src")
        for line, name, rule in banned_uses(path.read_text())
        if not _may(path, rule)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("from time import monotonic as now\nnow()", ["time.monotonic"]),
        ("import os\nx = os.urandom", ["os.urandom"]),
        ("from uuid import uuid4\nuuid4()", ["uuid.uuid4"]),
        ("from random import Random\nRandom(1)", ["random.Random"]),
        ("open('x')", ["open"]),
        ("files.open('x', 'read')\nself.random.random()", []),
        ("from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"]),
    ],
)
def test_the_rule_sees(source: str, names: list[str]) -> None:
    assert [name for _, name, _ in banned_uses(source)] == names


def unsafe_waits(source: str) -> list[tuple[int, str]]:
    """Calls of `asyncio.gather` that raise the first error, and of `asyncio.shield`: the line, and what to use."""
    calls = [(node, _dotted(node.func)) for node in _nodes(source) if isinstance(node, ast.Call)]
    gathers = [
        (node.lineno, "gather")
        for node, name in calls
        if name == "asyncio.gather" and all(given.arg != "return_exceptions" for given in node.keywords)
    ]
    return [*gathers, *((node.lineno, "shielded") for node, name in calls if name == "asyncio.shield")]


def test_asyncio_is_used_where_it_is_safe() -> None:
    """`asyncio.gather` may lose a cancellation; `asyncio.shield` logs failures that are known."""
    border = SOURCE / "sarit/env/background.py"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: use {name} of sarit.env.background"
        for path in _modules("src")
        for line, name in unsafe_waits(path.read_text())
        if path != border
    ]
    assert not wrong, "\n".join(wrong)
    assert unsafe_waits("asyncio.gather(a, b)\nasyncio.gather(a, return_exceptions=True)\nasyncio.shield(a)") == [
        (1, "gather"),
        (3, "shielded"),
    ]


def test_each_distribution_that_the_source_imports_is_declared_with_an_upper_bound() -> None:
    """h2 was imported, and came with another package; a new version of that one would have ended the gRPC port."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        re.split(r"[^A-Za-z0-9-]", line)[0].lower(): line
        for lines in (project["dependencies"], *project["optional-dependencies"].values())
        for line in lines
    }
    imported = (
        {
            name.partition(".")[0]
            for path in _modules("src")
            for node in _nodes(path.read_text())
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            )
        }
        - sys.stdlib_module_names
        # pytest itself loads `sarit.testing.plugin`; only type checkers, which have it, read typing_extensions.
        # Who trains brings the framework.
        - {"sarit", "pyspark_sarit", "pytest", "typing_extensions", "torch", "datasets", "ray"}
    )
    needed = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in imported}
    assert "h2" in needed
    wrong = sorted(name for name in needed if "<" not in declared.get(name, ""))
    assert not wrong, "declare in pyproject.toml, with an upper bound: " + ", ".join(wrong)


def test_modules_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in _modules(*SIZED)}
    wrong = [
        f"{path.relative_to(ROOT)} has {length} lines, the bound is {MAX_MODULE_LINES}"
        for path, length in lengths.items()
        if length > MAX_MODULE_LINES
    ]
    assert not wrong, "\n".join(wrong)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{node.name}"
            yield name, (node.end_lineno or node.lineno) - node.lineno + 1
            yield from _functions(node, f"{name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif not isinstance(node, ast.expr):  # only statements hold statements
            yield from _functions(node, prefix)


def test_functions_are_short() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{name} has {lines} lines, the bound is {MAX_FUNCTION_LINES}"
        for path in _modules(*SIZED)
        for name, lines in _functions(_tree(path))
        if lines > MAX_FUNCTION_LINES
    ]
    assert not wrong, "\n".join(wrong)


def test_classes_are_small() -> None:
    wrong = []
    for path in _modules("src", "simulation", "checkers"):
        for node in _nodes(path.read_text()):
            if isinstance(node, ast.ClassDef):
                methods = sum(
                    isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not item.name.startswith("__")
                    and not any(isinstance(one, ast.Name) and one.id == "property" for one in item.decorator_list)
                    for item in node.body
                )
                if methods > MAX_CLASS_METHODS:
                    wrong.append(f"{path.relative_to(ROOT)}: {node.name} has {methods} methods")
    assert not wrong, "\n".join(wrong)


def test_there_is_no_module_called_utils() -> None:
    wrong = [str(p.relative_to(ROOT)) for p in _modules("src") if p.stem in {"utils", "util", "helpers", "common"}]
    assert not wrong, "name the module after what it is about: " + ", ".join(wrong)


def test_blocking_client_is_what_the_asyncio_classes_give() -> None:
    wrong = [str(path.relative_to(ROOT)) for path in generate_blocking.stale()]
    assert not wrong, "run `make generate` and commit: " + ", ".join(wrong)


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAME = re.compile(r"[A-Za-z_]+")
_PROSE_WORD = re.compile(r"[A-Za-z]+")
_ADDRESS = re.compile(r"\]\([^)\n]*\)")
SPEAKING = ("src", "tests", "simulation", "checkers", "benchmarks", "examples", "tools", "fuzz")


@functools.cache
def _names_and_prose(source: str) -> tuple[frozenset[str], str]:
    """The names of Python code, and its strings and comments; three tests look at all modules."""
    names, prose = set(), []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            names.add(token.string)
        elif token.type in {tokenize.STRING, tokenize.COMMENT}:
            prose.append(token.string)
    return frozenset(names), "\n".join(prose)


@functools.cache
def _retired_words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name) if word.lower() in RETIRED)


def retired_identifiers(source: str) -> Iterator[tuple[str, str]]:
    """(retired word, identifier) of each identifier of Python code that has one."""
    # To split a module into tokens takes long, and few have such a word anywhere.
    if not any(map(_retired_words, set(_NAME.findall(source)))):
        return
    for name in _names_and_prose(source)[0] - set(ALLOWED_IDENTIFIERS):
        for word in _retired_words(name):
            yield word, name


def retired_prose(text: str) -> Iterator[str]:
    """Retired words of a text; the addresses of its links do not count."""
    for word in _PROSE_WORD.findall(_ADDRESS.sub("]", text)):
        if word.lower() in RETIRED_PROSE:
            yield word.lower()


def _documents() -> list[Path]:
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in path.parts]
    return [*pages, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))]


def _spoken() -> Iterator[tuple[str, str]]:
    """(path, source) of every module but the list of words and this one."""
    for path in _modules(*SPEAKING):
        if path.name not in {"vocabulary.py", "test_tidy.py"}:
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def _is_allowed(place: str, word: str) -> bool:
    return any(place.startswith(prefix) and word in words for prefix, (words, _) in ALLOWED_PLACES.items())


def test_identifiers_are_free_of_retired_words() -> None:
    wrong = {
        f"{place}: {name}: instead of {word!r} say {RETIRED[word]}"
        for place, source in _spoken()
        for word, name in retired_identifiers(source)
        if not _is_allowed(place, word)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_prose_is_free_of_retired_words() -> None:
    texts = [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in _documents()]
    # To split a module into tokens takes long, and few have such a word anywhere.
    texts += [(place, _names_and_prose(source)[1]) for place, source in _spoken() if any(retired_prose(source))]
    wrong = {
        f"{place}: instead of {word!r} say {RETIRED_PROSE[word]}"
        for place, text in texts
        for word in retired_prose(text)
        if not _is_allowed(place, word)
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_allowed_words_are_in_use() -> None:
    sources = dict(_spoken())
    idle = [
        name
        for name in ALLOWED_IDENTIFIERS
        if not any(name in source and name in _names_and_prose(source)[0] for source in sources.values())
    ]
    idle += [
        f"{prefix}: {word}"
        for prefix, (words, _) in ALLOWED_PLACES.items()
        for word in words
        if not any(word in source.lower() for place, source in sources.items() if place.startswith(prefix))
    ]
    assert not idle, "take it off the list: " + ", ".join(idle)


def test_retired_words_are_recognized() -> None:
    source = "def _lookAgain(patience_seconds): OpenDoor.hinted(get_type_hints)  # a lane"
    assert sorted(retired_identifiers(source)) == [
        ("door", "OpenDoor"),
        ("look", "_lookAgain"),
        ("patience", "patience_seconds"),
    ]
    assert list(retired_prose("Nobody was told; planet lanes, [a page](looked-for.md)")) == ["told", "lanes"]


def _mentions_callable(annotation: ast.expr, aliases: Set[str]) -> bool:
    parts = ast.unparse(annotation).split(" | ")
    return parts[0].startswith("Callable[") or not aliases.isdisjoint(parts)


def _is_fixed(node: ast.ClassDef) -> bool:
    """Whether nobody can assign to its fields."""
    words = " ".join(map(ast.unparse, (*node.bases, *node.decorator_list)))
    return any(word in words for word in ("NamedTuple", "Protocol", "frozen=True"))


def callable_attributes(source: str) -> Iterator[str]:
    """Public attributes of classes that are annotated as callables, or set to a lambda."""
    nodes = _nodes(source)
    aliases = {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.value is not None
        and ast.unparse(node.annotation) == "TypeAlias"
        and "Callable[" in ast.unparse(node.value)
    }
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and not _is_fixed(node)]
    fields = {id(item) for node in classes for item in node.body}
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and (isinstance(node.target, ast.Attribute) or id(node) in fields):
            name = node.target.attr if isinstance(node.target, ast.Attribute) else ast.unparse(node.target)
            if not name.startswith("_") and _mentions_callable(node.annotation, aliases):
                yield name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                    yield target.attr


def outside_assignments(source: str, names: Set[str]) -> Iterator[tuple[int, str]]:
    """(line, target) of each assignment to such an attribute of another object than `self`; plain values are none."""
    for node in _nodes(source):
        if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Constant):
            continue
        for target in [part for given in node.targets for part in getattr(given, "elts", [given])]:
            if isinstance(target, ast.Attribute) and target.attr in names and ast.unparse(target.value) != "self":
                yield node.lineno, ast.unparse(target)


def test_listeners_are_given_not_patched() -> None:
    """Else an object is half made until somebody remembers to assign what it calls."""
    made = "class A:\n    x: Callable[[], None]\n    def __init__(self) -> None:\n        self.y = lambda: 1"
    assert set(callable_attributes(made)) == {"x", "y"}
    assert list(outside_assignments("a.x, self.y = f, g\nb.y = f\nb.x = None", {"x", "y"})) == [(1, "a.x"), (2, "b.y")]
    sources = {path: path.read_text() for path in _modules("src")}
    names = {name for source in sources.values() for name in callable_attributes(source)}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {target}: make it an argument of the constructor, or a registering method"
        for path, source in sources.items()
        for line, target in outside_assignments(source, names)
    ]
    assert not wrong, "\n".join(wrong)


_SAID = frozenset(("warning", "error", "exception", "critical", "warn"))


def shown_objects(source: str) -> Iterator[str]:
    """What errors and log lines show of objects by `repr`: parts of `self`, and anything by %r."""
    for node in _nodes(source):
        logged = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAID
        if not logged and not isinstance(node, ast.Raise):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.FormattedValue) and part.conversion == ord("r"):
                value = part.value
                while isinstance(value, ast.Attribute):
                    value = value.value
                if isinstance(value, ast.Name) and value.id == "self":
                    yield f"{part.lineno}: {{{ast.unparse(part.value)}!r}}"
            elif logged and isinstance(part, ast.Constant) and isinstance(part.value, str) and "%r" in part.value:
                yield f"{part.lineno}: {part.value}"


def test_messages_show_no_objects() -> None:
    assert list(shown_objects("raise Invalid(f'{self._stream!r} {name!r}')\nlog.warning('%r', self)")) == [
        "1: {self._stream!r}", "2: %r",
    ]  # fmt: skip
    wrong = [
        f"{path.relative_to(ROOT)}:{found}" for path in _modules("src") for found in shown_objects(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)
