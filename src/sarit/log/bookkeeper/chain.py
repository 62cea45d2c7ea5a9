"""The chain of a container: the ledgers that hold its frames, in order, and the epoch of their owner.

The chain is the value of one register.  An owner begins its epoch by a compare-and-set of the register, so of two
openers one fails.  From then on only this owner adds ledgers.  Format and reasons: docs/formats/bookkeeper.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from sarit.core.errors import Corrupt, Invalid
from sarit.core.limits import LOG_IDENTITY_BYTES
from sarit.log.bookkeeper.limits import MAX_CHAIN_LEDGERS, MAX_RETIRED_LEDGERS

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION: Final = 1
# The last frame of a ledger that is not closed.
OPEN: Final = -1

_HEAD = struct.Struct(f">B{LOG_IDENTITY_BYTES}sQQHH")
_LEDGER = struct.Struct(">qqqq")
_RETIRED = struct.Struct(">qq")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class ChainLedger:
    """A ledger with frames `first` to `last`, in `size` bytes.

    `last` is OPEN while the owner writes the ledger; `first` is then the lowest frame with which it can begin."""

    ledger: int
    first: int
    last: int = OPEN
    size: int = 0

    @property
    def closed(self) -> bool:
        """Whether the chain knows the end of the ledger."""
        return self.last != OPEN


@dataclass(frozen=True, slots=True)
class Chain:
    """The chain of a log.  `reached`: the highest frame that any closed ledger of the log has had.

    `retired`: ledgers without a needed frame, to be deleted after a pause, with the time in ms since 1970."""

    identity: bytes
    epoch: int = 0
    reached: int = 0
    ledgers: tuple[ChainLedger, ...] = ()
    retired: tuple[tuple[int, int], ...] = ()

    @property
    def open_ledgers(self) -> tuple[int, ...]:
        """The ledgers whose end the chain does not know."""
        return tuple(each.ledger for each in self.ledgers if not each.closed)


def begin_epoch(chain: Chain, epoch: int, ends: Mapping[int, tuple[int, int]], ledger: int) -> Chain:
    """Begin the epoch of a new owner, which closed the open ledgers at `ends` (last frame, bytes) and writes `ledger`.

    A ledger whose last frame is below its first one is empty and is dropped."""
    assert epoch > chain.epoch, (epoch, chain)
    for each, (last, size) in ends.items():
        chain = close(chain, each, last, size)
    assert not chain.open_ledgers, chain
    return roll_over(replace(chain, epoch=epoch), ledger, chain.reached + 1)


def reserve(chain: Chain, ledger: int, wall_ms: int) -> Chain:
    """Note a ledger that is about to be created, to be deleted like a retired one unless it becomes part of the chain.

    At MAX_RETIRED_LEDGERS it is not noted: a ledger that stays is better than a log that can never be opened."""
    if len(chain.retired) >= MAX_RETIRED_LEDGERS:
        return chain
    return replace(chain, retired=(*chain.retired, (ledger, wall_ms)))


def roll_over(chain: Chain, ledger: int, first: int) -> Chain:
    """Add an empty ledger at the end.  Raises Invalid when the chain has no place for it."""
    assert all(each.ledger != ledger for each in chain.ledgers), (ledger, chain)
    if len(chain.ledgers) >= MAX_CHAIN_LEDGERS:
        raise Invalid(f"the log has {MAX_CHAIN_LEDGERS} ledgers already: it waits for a flush")
    retired = tuple(each for each in chain.retired if each[0] != ledger)
    return replace(chain, ledgers=(*chain.ledgers, ChainLedger(ledger, first)), retired=retired)


def close(chain: Chain, ledger: int, last: int, size: int, wall_ms: int = 0) -> Chain:
    """Note the end of a ledger; an empty one is retired.

    `wall_ms`: the time now; 0 when it is not known."""
    ledgers: list[ChainLedger] = []
    retired = list(chain.retired)
    for each in chain.ledgers:
        if each.ledger != ledger or each.closed:
            ledgers.append(each)
        elif last < each.first:
            retired.append((ledger, wall_ms))
        else:
            ledgers.append(replace(each, last=last, size=size))
    return replace(chain, ledgers=tuple(ledgers), retired=tuple(retired), reached=max(chain.reached, last))


def retire(chain: Chain, below: int, wall_ms: int) -> Chain:
    """Retire the ledgers whose frames are all below `below`.  Their data stays until they are deleted."""
    done = [each for each in chain.ledgers if each.closed and each.last < below]
    if not done:
        return chain
    kept = tuple(each for each in chain.ledgers if each not in done)
    return replace(chain, ledgers=kept, retired=(*chain.retired, *((each.ledger, wall_ms) for each in done)))


def forget(chain: Chain, deleted: frozenset[int]) -> Chain:
    """Remove retired ledgers whose metadata is deleted."""
    return replace(chain, retired=tuple(each for each in chain.retired if each[0] not in deleted))


def encode(chain: Chain) -> bytes:
    """Return the value of the register for a chain."""
    head = _HEAD.pack(
        FORMAT_VERSION, chain.identity, chain.epoch, chain.reached, len(chain.ledgers), len(chain.retired)
    )
    ledgers = [_LEDGER.pack(each.ledger, each.first, each.last, each.size) for each in chain.ledgers]
    data = b"".join([head, *ledgers, *(_RETIRED.pack(*each) for each in chain.retired)])
    return data + _CRC.pack(crc32c(data))


def decode(data: bytes) -> Chain:
    """Return the chain in the value of a register.  Raises Corrupt, Invalid (a newer format)."""
    if data[:1] and data[0] > FORMAT_VERSION:
        raise Invalid(
            f"the chain of a log has format {data[0]}: this Sarit reads up to {FORMAT_VERSION}; install a newer"
        )
    if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != crc32c(data[: -_CRC.size]):
        raise Corrupt("the chain of a log is damaged: its checksum is wrong")
    _, identity, epoch, reached, ledgers, retired = _HEAD.unpack_from(data)
    at = _HEAD.size
    if len(data) != at + ledgers * _LEDGER.size + retired * _RETIRED.size + _CRC.size:
        raise Corrupt("the chain of a log is damaged: its length is wrong")
    middle = at + ledgers * _LEDGER.size
    return Chain(
        identity,
        epoch,
        reached,
        tuple(ChainLedger(*each) for each in _LEDGER.iter_unpack(data[at:middle])),
        tuple(_RETIRED.iter_unpack(data[middle : -_CRC.size])),
    )
