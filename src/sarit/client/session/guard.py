"""Wrong use of a public class raises Invalid at once and says what is wrong: a class decorator checks every call.

    @guarded("_session", local=("close",))
    class Stream: ...

Each public method then checks, before its body runs:

* its arguments, against its annotations and against `BOUNDS`, which gives the bounds of numbers by argument name;
* that the client is open, was made by this process, and belongs to the running event loop (`Session.check`), unless
  the method is `local`: it makes no request, or ends something.

A method with neither is left as it is.

One rule for all: Invalid for an argument of the wrong type or out of bounds, as for every other wrong call.  TypeError
is Python's own: a missing argument, or one that does not exist.  `unguarded` methods check by themselves, or are not
for users.  Arguments that are not given are not checked: a call without any costs one comparison more.

Annotations are read as text, since most of their names are imported for the type checker alone.  The name of a class
matches by the names in the type's method resolution order.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import numbers
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from sarit.core.errors import Invalid, SaritError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Check = Callable[[Any], bool]

T = TypeVar("T")

_SHOWN_CHARS: Final = 60
_INT64: Final = 1 << 63
MARK: Final = "__guarded__"
_BLOCKING: Final = "_inner."  # a blocking object has the session of its asyncio one

# Annotations by their own names; what they stand for.
ALIASES: Final = {
    "Cut": "StreamCut | str | None",
    "CutLike": "Checkpoint | Mapping[StreamName, StreamCut] | StreamCut | str | None",
    "Part": "bytes | str",
    "Key": "bytes | str | tuple[bytes | str, bytes | str]",
    "Change": "Put | Insert | Replace | Remove",
}
_ANYTHING: Final = ("Any", "object", "S", "T", "V", "W")

_SECONDS: Final = (0.0, 1e9)
_COUNT: Final = (0, _INT64 - 1)
_ANY_INT64: Final = (-_INT64, _INT64 - 1)
# Argument -> its least and its largest value.
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "retry_timeout": (0.0, math.inf),
    "timeout": _SECONDS,
    "wait": _SECONDS,
    "lease_seconds": _SECONDS,
    "death_timeout": _SECONDS,
    "automatic_checkpoint": _SECONDS,
    "offset": _COUNT,
    "start": _COUNT,
    "end": _COUNT,
    "most": (1, _INT64 - 1),
    "count": _COUNT,
    "distance_bytes": _COUNT,
    "step_bytes": (1, _INT64 - 1),
    "limit_bytes": _COUNT,
    "memory_bytes": (1 << 20, _INT64 - 1),
    "max_bytes": (8, _INT64 - 1),  # the header of an event
    "time_ms": _COUNT,
    "start_ms": _ANY_INT64,
    "end_ms": _ANY_INT64,
    "bucket_ms": _COUNT,
    "limit": (0, (1 << 31) - 1),
    "facet_limit": (1, (1 << 31) - 1),
    "buffer_bytes": _COUNT,
    "compact_after_bytes": _COUNT,
    "page_entries": (1, _INT64 - 1),
    "parallel": (1, _INT64 - 1),
    "max_outstanding_checkpoints": (1, (1 << 31) - 1),
}


def is_text(value: object) -> bool:
    """Return whether it is a str that UTF-8 can encode."""
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_whole(value: object) -> bool:
    """Return whether it is an integer, of NumPy too; not a bool."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def is_number(value: object) -> bool:
    """Return whether it is a number that can be compared: neither a bool nor NaN."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and not math.isnan(value)


_PLAIN: Final[Mapping[str, tuple[Check, str]]] = {
    "str": (is_text, "a str of valid Unicode"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "bytearray": (lambda value: isinstance(value, bytearray), "bytearray"),
    "memoryview": (lambda value: isinstance(value, memoryview), "memoryview"),
    "bool": (lambda value: isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"), "True or False"),
    "int": (is_whole, "an int"),
    "float": (is_number, "a number"),
    "None": (lambda value: value is None, "None"),
    "Callable": (callable, "a function"),
    "Serializer": (
        lambda value: callable(getattr(value, "serialize", None)),
        "a serializer: an object with a method `serialize`",
    ),
    "Deserializer": (
        lambda value: callable(getattr(value, "deserialize", None)),
        "a deserializer: an object with a method `deserialize`",
    ),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
}
# Of these types every value passes.
_ALWAYS_RIGHT: Final = (bytes, bytearray, memoryview, bool)


class Argument:
    """One argument of a method: which values it takes, and how to say that."""

    __slots__ = ("_check", "_expected", "_name")

    def __init__(self, name: str, annotation: str) -> None:
        bounds = BOUNDS.get(name)
        self._name = name
        self._check, self._expected = _check_of(ast.parse(annotation, mode="eval").body, bounds)

    def refuse_wrong(self, method: str, value: object) -> None:
        """Raises Invalid."""
        if not self._check(value):
            shown = ascii(value)
            if len(shown) > _SHOWN_CHARS:
                shown = f"{shown[:_SHOWN_CHARS]}... ({type(value).__name__})"
            raise Invalid(f"{method}({self._name}={shown}): give {self._expected}")


def _check_of(node: ast.expr, bounds: tuple[float, float] | None) -> tuple[Check, str]:
    members = [_member(part, bounds) for part in _members(node)]
    checks = [check for check, _ in members]
    expected = list(dict.fromkeys(text for _, text in members))
    text = expected[0] if len(expected) == 1 else f"{', '.join(expected[:-1])} or {expected[-1]}"
    if len(checks) == 1:
        return checks[0], text
    names = {part.id for part in _members(node) if isinstance(part, ast.Name)}
    exact = frozenset(kind for kind in _ALWAYS_RIGHT if kind.__name__ in names)
    # The type first: a batch of a table has two unions for each item.
    return lambda value: type(value) in exact or any(check(value) for check in checks), text


def _members(node: ast.expr) -> list[ast.expr]:
    """Return the members of a union, with aliases expanded."""
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_members(left), *_members(right)]
        case ast.Name(id=name) if name in ALIASES:
            return _members(ast.parse(ALIASES[name], mode="eval").body)
    return [node]


def _member(node: ast.expr, bounds: tuple[float, float] | None) -> tuple[Check, str]:
    match node:
        case ast.Constant(value=None):
            return _PLAIN["None"]
        case ast.Name(id=name) if name in _ANYTHING:
            return lambda _: True, "anything"
        case ast.Name(id="int" | "float" as name):
            return _bounded(name, bounds)
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)) if name in _PLAIN:
            return _PLAIN[name]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)) if not _is_ellipsis(parts[-1]):
            return _tuple_of(parts)
        case ast.Subscript(value=ast.Name(id="Iterable" | "Sequence" | "Collection" | "tuple"), slice=part):
            return _many(part.elts[0] if isinstance(part, ast.Tuple) else part)
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(value=ast.Name(id=name)):
            return _instance(name)
    raise TypeError(f"no check for the annotation {ast.unparse(node)}")


def _bounded(kind: str, bounds: tuple[float, float] | None) -> tuple[Check, str]:
    plain, text = _PLAIN[kind]
    low, high = bounds or (_ANY_INT64 if kind == "int" else (-math.inf, math.inf))
    if bounds is not None:
        text = f"{low:g} or more ({text})" if high in (math.inf, _INT64 - 1) else f"{low:g} to {high:g} ({text})"
    return lambda value: plain(value) and low <= value <= high, text


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _tuple_of(parts: list[ast.expr]) -> tuple[Check, str]:
    described = [_check_of(part, None) for part in parts]
    checks = [one for one, _ in described]

    def check(value: Any) -> bool:
        if not isinstance(value, tuple) or len(value) != len(checks):
            return False
        # A loop: a generator for each item of a batch takes longer than its checks.
        for one, item in zip(checks, value, strict=True):  # noqa: SIM110
            if not one(item):
                return False
        return True

    return check, f"a tuple ({', '.join(text for _, text in described)})"


def _many(part: ast.expr) -> tuple[Check, str]:
    one, text = _check_of(part, None)

    def check(value: Any) -> bool:
        # A text is an iterable of texts; who gives one means a single item.  An iterator can be read once only.
        if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Iterable):
            return False
        return not isinstance(value, list | tuple | set | frozenset) or all(map(one, value))

    return check, f"a list of items, each {text}"


def _instance(name: str) -> tuple[Check, str]:
    def check(value: object) -> bool:
        return any(kind.__name__ == name for kind in type(value).__mro__)

    return check, f"a {name}"


class Arguments:
    """The arguments of one method, by position and by name."""

    __slots__ = ("_by_name", "_by_position", "_method", "_rest")

    def __init__(self, function: Any, skipped: int = 1) -> None:
        # Who calls an instance writes no name of a method.
        self._method = function.__name__ if function.__name__ != "__call__" else function.__qualname__.split(".")[0]
        self._by_position: list[Argument | None] = []
        self._by_name: dict[str, Argument] = {}
        self._rest: Argument | None = None
        for found in list(inspect.signature(function).parameters.values())[skipped:]:
            argument = None if found.annotation is found.empty else Argument(found.name, found.annotation)
            if found.kind is found.VAR_POSITIONAL:
                self._rest = argument
            elif found.kind is not found.VAR_KEYWORD:
                if found.kind is not found.KEYWORD_ONLY:
                    self._by_position.append(argument)
                if argument is not None:
                    self._by_name[found.name] = argument

    def __bool__(self) -> bool:
        """Return whether there are any to check."""
        return bool(self._by_name) or self._rest is not None

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises Invalid."""
        known = len(self._by_position)
        for argument, value in zip(self._by_position, args, strict=False):
            if argument is not None:
                argument.refuse_wrong(self._method, value)
        if self._rest is not None:
            for value in args[known:]:
                self._rest.refuse_wrong(self._method, value)
        for name, value in kwargs.items():
            if name in self._by_name:  # an unknown name is Python's to refuse
                self._by_name[name].refuse_wrong(self._method, value)


def check_call(function: Any, *args: Any, **kwargs: Any) -> None:
    """Check the arguments of a function that is no method of a guarded class.  Raises Invalid."""
    _arguments_of(function).check(args, kwargs)


@functools.cache
def _arguments_of(function: Any) -> Arguments:
    return Arguments(function, 0)


def guarded(
    session: str, *, local: Collection[str] = (), unguarded: Collection[str] = ()
) -> Callable[[type[T]], type[T]]:
    """Guard the public methods of a class; `session`: where its instances have the session.

    Such a class is public, too: of `sarit` when it is a blocking one, else of `sarit.aio`."""
    session_of, blocking = attrgetter(session), session.startswith(_BLOCKING)

    def guard(cls: type[T]) -> type[T]:
        for name, function in list(vars(cls).items()):
            public = name in ("__aiter__", "__call__") or not name.startswith("_")
            if public and inspect.isfunction(function) and name not in unguarded:
                setattr(cls, name, _guard(function, None if name in local else session_of, trims=blocking))
        cls.__module__ = "sarit" if blocking else "sarit.aio"
        cls.__reduce__ = _refuse_pickle  # type: ignore[method-assign]
        cls.__dir__ = _public_names  # type: ignore[method-assign]
        unknown = {*local, *unguarded} - vars(cls).keys()
        assert not unknown, f"{cls.__name__} has no {', '.join(sorted(unknown))}"
        return cls

    return guard


def _refuse_pickle(self: object) -> NoReturn:
    name = type(self).__name__
    raise TypeError(
        f"a {name} cannot be pickled: it belongs to the connections of this process.  Pass the address and the names, "
        f"and make the {name} in the worker; with Spark, read and write by the data source `sarit`"
    )


def _public_names(self: object) -> list[str]:
    """List what a user may call, and what Python itself does."""
    return [name for name in object.__dir__(self) if not name.startswith("_") or name.endswith("__")]


def _guard(function: Any, session_of: Callable[[Any], Any] | None, *, trims: bool) -> Any:
    arguments = Arguments(function)
    if session_of is None and not arguments:
        # Nothing to check: a wrapper would cost each `flush` a coroutine, and its reader a detour.
        setattr(function, MARK, True)
        return function
    check = arguments.check
    wrapper: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                check(args, kwargs)
            if session_of is not None:
                session_of(self).check()
            return await function(self, *args, **kwargs)
    else:

        @functools.wraps(function)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if args or kwargs:
                    check(args, kwargs)
                if session_of is not None:
                    session_of(self).check_caller()
                return function(self, *args, **kwargs)
            except SaritError as error:
                if trims:
                    raise error.with_traceback(None) from None  # see `tracebacks.py`
                raise

    setattr(wrapper, MARK, True)
    return wrapper
