"""The table of commands: `@command(code)` registers a class for a list of fields, and makes its encoder and decoder.

A command is declared as its wire layout: fields in wire order, each annotated with a codec's name
(`wire/primitives.py`).  Fields with a default are *optional trailing fields*: old peers omit them, so the decoder
uses the default when the payload ends exactly before one.  The encoder always writes every field, because the Rust
client needs them all.  Bytes after the last field are ignored: a newer peer may have more fields.

Neighbouring fields of fixed width are packed by one `struct` call.  Data fields are references, not copies.
Frame: int32 code, int32 payload length, payload (wire.md par. 1).
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Final, NoReturn, TypeVar, dataclass_transform, get_type_hints

from sarit.env.ports import Buffer
from sarit.wire.errors import ProtocolError
from sarit.wire.limits import JOINED_PIECE_BYTES, MAX_WIRE_PAYLOAD_BYTES
from sarit.wire.primitives import Codec, Fixed

HEADER: Final = struct.Struct(">ii")


class Command:
    """The base of all commands, each sent as a frame; `code` is its type on the wire.

    Commands are immutable and equal by their fields.  Their common methods are defined here, because a dataclass would
    compile them for each class, which took a fifth of the time in which a process starts.
    """

    __slots__ = ()
    code: ClassVar[int]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        take = _PLANS[self.code].take
        return take(self) == take(other)

    def __hash__(self) -> int:
        return hash(_PLANS[self.code].take(self))

    def __repr__(self) -> str:
        plan = _PLANS[self.code]
        shown = (f"{name}={value!r}" for name, value in zip(plan.names, plan.take(self), strict=True))
        return f"{plan.name}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), _PLANS[self.code].take(self)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


C = TypeVar("C", bound=Command)

CODES: Final[dict[int, type[Command]]] = {}


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring fields of fixed width, values[first:end], which are packed as one struct."""

    layout: struct.Struct
    first: int
    end: int
    widths: tuple[tuple[int, Fixed], ...]
    optional: bool

    def write(self, values: Sequence[Any], out: list[Buffer]) -> None:
        # Check lengths first: `struct` pads or cuts a value of a wrong length instead of refusing it.
        for at, codec in self.widths:
            codec.check(values[at])
        try:
            out.append(self.layout.pack(*values[self.first : self.end]))
        except struct.error as error:
            raise ProtocolError(str(error)) from None

    def read(self, payload: Buffer, at: int, values: list[Any]) -> int:
        end = at + self.layout.size
        if len(payload) < end:
            raise ProtocolError("is cut short")
        values += self.layout.unpack_from(payload, at)
        return end


@dataclass(frozen=True, slots=True)
class _Single:
    """One field of variable width."""

    codec: Codec
    first: int
    optional: bool

    def write(self, values: Sequence[Any], out: list[Buffer]) -> None:
        self.codec.write(values[self.first], out)

    def read(self, payload: Buffer, at: int, values: list[Any]) -> int:
        value, at = self.codec.read(payload, at)
        values.append(value)
        return at


@dataclass(frozen=True, slots=True)
class _Plan:
    """The encoder and decoder of a class of commands.  Bound methods avoid lookups per command."""

    make: Callable[..., Command]
    name: str
    names: tuple[str, ...]
    take: Callable[[Any], tuple[Any, ...]]
    writers: tuple[Callable[[Sequence[Any], list[Buffer]], None], ...]
    readers: tuple[tuple[bool, Callable[[Buffer, int, list[Any]], int]], ...]

    def write(self, command: Command) -> list[Buffer]:
        values = self.take(command)
        out: list[Buffer] = []
        try:
            for write in self.writers:
                write(values, out)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} cannot be sent: {error}") from None
        return out

    def read(self, payload: Buffer) -> Command:
        values: list[Any] = []
        at = 0
        end = len(payload)
        try:
            for optional, read in self.readers:
                # A command of an old peer may end here: the defaults of the class fill in the rest.
                if optional and at == end:
                    break
                at = read(payload, at, values)
        except ProtocolError as error:
            raise ProtocolError(f"{self.name} of {len(payload)} bytes: {error}") from None
        return self.make(*values)


_PLANS: Final[dict[int, _Plan]] = {}


def _taker(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _command: ()
    # With one name `attrgetter` returns the bare value, with more a tuple.
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda command: (getter(command),)


def _steps(table: Sequence[tuple[Codec, bool]]) -> tuple[_Run | _Single, ...]:
    """Return the steps that encode the fields: neighbours of fixed width joined, each optional field on its own."""
    steps: list[_Run | _Single] = []
    first = 0
    while first < len(table):
        codec, optional = table[first]
        if not isinstance(codec, Fixed):
            steps.append(_Single(codec, first, optional))
            first += 1
            continue
        run = [codec]
        # An optional field ends a run: the decoder must be able to stop before it.
        while not optional and first + len(run) < len(table):
            follower, follower_optional = table[first + len(run)]
            if follower_optional or not isinstance(follower, Fixed):
                break
            run.append(follower)
        layout = struct.Struct(">" + "".join(fixed.format for fixed in run))
        widths = tuple((first + at, fixed) for at, fixed in enumerate(run) if fixed.width)
        steps.append(_Run(layout, first, first + len(run), widths, optional))
        first += len(run)
    return tuple(steps)


def _initializer(made: type[Command], columns: Sequence[Field[Any]]) -> Callable[..., None]:
    """Return `__init__` for a class of commands, which sets each slot by its descriptor: attributes cannot be set."""
    known: dict[str, Any] = {}
    parameters = ["self"]
    lines = []
    for column in columns:
        known[f"set_{column.name}"] = getattr(made, column.name).__set__
        if column.default is MISSING:
            parameters.append(column.name)
        else:
            known[f"default_{column.name}"] = column.default
            parameters.append(f"{column.name}=default_{column.name}")
        lines.append(f" set_{column.name}(self, {column.name})\n")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines) or ' pass'}", known)  # nosec B102
    made_init: Callable[..., None] = known["__init__"]
    made_init.__qualname__ = f"{made.__qualname__}.__init__"
    return made_init


@dataclass_transform()
def command(code: int) -> Callable[[type[C]], type[C]]:
    """Make a frozen, slotted dataclass of a field table and register it under its type code."""

    def register(table: type[C]) -> type[C]:
        # Register the class that `dataclass` returns, not `table`: `slots` makes a new class.
        made = dataclass(init=False, repr=False, eq=False, slots=True)(table)
        # Include extras, because the codec is the metadata of the `Annotated` type.
        annotations = get_type_hints(made, include_extras=True)
        columns = fields(made)  # type: ignore[arg-type]
        made.__init__ = _initializer(made, columns)  # type: ignore[method-assign]
        codecs = [(annotations[field.name].__metadata__[0], field.default is not MISSING) for field in columns]
        assert code not in CODES, f"two commands have the code {code}"
        made.code = code
        CODES[code] = made
        steps = _steps(codecs)
        writers = tuple(step.write for step in steps)
        readers = tuple((step.optional, step.read) for step in steps)
        names = tuple(field.name for field in columns)
        _PLANS[code] = _Plan(made, made.__name__, names, _taker(names), writers, readers)
        return made

    return register


def decode(code: int, payload: Buffer) -> Command:
    """Return the command in a frame.  Data fields are slices of `payload`.

    Raises ProtocolError for an unknown code, and for a payload that does not hold the command's fields.
    """
    plan = _PLANS.get(code)
    if plan is None:
        raise ProtocolError(f"there is no command {code}")
    return plan.read(payload)


def _pieces(command: Command) -> list[Buffer]:
    pieces = _PLANS[command.code].write(command)
    length = sum(map(len, pieces))
    # Refuse a longer payload here, where the caller can still act: the receiver would end the connection.
    if length > MAX_WIRE_PAYLOAD_BYTES:
        raise ProtocolError(f"{type(command).__name__} of {length} bytes; the most is {MAX_WIRE_PAYLOAD_BYTES}")
    pieces.insert(0, HEADER.pack(command.code, length))
    return pieces


def encode(command: Command) -> bytes:
    """Return the frame of a command, with its header.  Raises ProtocolError when a field does not fit."""
    return b"".join(_pieces(command))


def encode_parts(command: Command) -> list[Buffer]:
    """Return the frame of a command in parts to be written one after the other; large data fields are not copied.

    Raises ProtocolError when a field does not fit.
    """
    parts: list[Buffer] = []
    short: list[Buffer] = []
    for piece in _pieces(command):
        if len(piece) < JOINED_PIECE_BYTES:
            short.append(piece)
            continue
        if short:
            parts.append(b"".join(short))
        parts.append(piece)
        short = []
    if short:
        parts.append(b"".join(short))
    return parts
