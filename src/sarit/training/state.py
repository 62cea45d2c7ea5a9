"""Positions of the shards of an epoch: what each has handed out, and what all together have left (pure).

A position is plain values, for JSON or a checkpoint of any framework.  `merge` takes those of all shards and returns
one that any other number of shards may begin with.  What it takes may be nested in whatever a framework made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sarit.core.errors import Invalid
from sarit.training.limits import MAX_TRAINING_INTERLEAVE, MAX_TRAINING_SHARDS
from sarit.training.order import mixed, permutation
from sarit.training.plan import Plan, as_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MARK: Final = "sarit-training"
VERSION: Final = 1
# Where a piece begins or ends: its offset is not known before it is read.
EDGE: Final = -1
_PIECES: Final = 1
_BLOCKS: Final = 2
_NO_STATE: Final = "that is no position of a reader for training: give what `state_dict` or `merge` returned"

# A piece, and the offset of the first event that is left of it.
Item: TypeAlias = tuple[int, int]
# A piece, and the offsets between which a block has its events.
Range: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Order:
    """The caller's choices on which the order of events depends, beside the plan.

    `shuffle_rows`: of a shuffled block; 0: events come as they are stored.  `interleave`: of how many pieces.
    """

    seed: int
    shuffle_rows: int
    interleave: int

    def __post_init__(self) -> None:
        """Check the choices.  Raises Invalid."""
        if self.shuffle_rows < 0:
            raise Invalid(f"a buffer of {self.shuffle_rows} events cannot be shuffled: give 0 or more (shuffle_rows)")
        if not 1 <= self.interleave <= MAX_TRAINING_INTERLEAVE:
            raise Invalid(f"{self.interleave} pieces cannot be mixed: give 1 to {MAX_TRAINING_INTERLEAVE} (interleave)")

    def block_key(self, epoch: int, shard: int, shards: int, number: int) -> int | None:
        """Return what orders the events of one block; None: they come as they are stored."""
        return mixed(_BLOCKS, self.seed, epoch, shards, shard, number) if self.shuffle_rows else None


@dataclass(frozen=True, slots=True)
class Block:
    """Events that are handed out together, in an order that `key` decides.

    `emitted` of its `rows` events were handed out; `mark`: the hash of the last of them."""

    ranges: tuple[Range, ...]
    key: int | None
    rows: int
    emitted: int = 0
    mark: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Events to read: items of an epoch in their order, and blocks that somebody began."""

    items: tuple[Item, ...]
    blocks: tuple[Block, ...] = ()

    def share(self, shard: int, shards: int) -> Work:
        """Return one shard's part of it."""
        return Work(self.items[shard::shards], self.blocks[shard::shards])


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a shard is in its work: `begun` has the items under way, each with the offset of its next event.

    `item` is the first that was not begun, `block` the first of the inherited blocks that was not, and `number` that of
    the next block that the shard makes."""

    begun: tuple[tuple[int, int] | None, ...]
    item: int = 0
    block: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class ShardState:
    """The position of one shard.  `block` is under way, and `cursor` stands behind it; `work` None: all of a fresh
    epoch."""

    plan: Plan
    order: Order
    epoch: int
    shard: int
    shards: int
    cursor: Cursor
    block: Block | None = None
    work: Work | None = None

    def own_work(self) -> Work:
        """Return all that the shard has to read in this epoch."""
        return self.work or fresh_work(self.plan, self.order, self.epoch).share(self.shard, self.shards)

    def left(self) -> Work:
        """Return what is not handed out yet."""
        work = self.own_work()
        begun = [(work.items[one[0]][0], one[1]) for one in self.cursor.begun if one is not None]
        blocks = work.blocks[self.cursor.block :]
        if self.block is not None and self.block.emitted < self.block.rows:
            blocks = (self.block, *blocks)
        return Work((*begun, *work.items[self.cursor.item :]), blocks)


@dataclass(frozen=True, slots=True)
class EpochState:
    """The position of a whole epoch: what all its shards together have left."""

    plan: Plan
    order: Order
    epoch: int
    work: Work | None = None

    def shard(self, shard: int, shards: int) -> ShardState:
        """Return the position at which one of any number of shards begins.  Raises Invalid."""
        if not 0 <= shard < shards <= MAX_TRAINING_SHARDS:
            raise Invalid(f"there is no shard {shard} of {shards}")
        work = None if self.work is None else self.work.share(shard, shards)
        cursor = Cursor((None,) * self.order.interleave)
        return ShardState(self.plan, self.order, self.epoch, shard, shards, cursor, None, work)


def fresh_work(plan: Plan, order: Order, epoch: int) -> Work:
    """Return the work of an epoch that nobody began."""
    count = len(plan)
    numbers = permutation(count, mixed(_PIECES, order.seed, epoch)) if order.shuffle_rows else range(count)
    return Work(tuple((number, EDGE) for number in numbers))


def merged(states: list[ShardState]) -> EpochState:
    """Return what several shards have left.  Raises Invalid: they are not all the shards of one epoch."""
    if not states:
        raise Invalid("no position of a shard to merge")
    first = states[0]
    for state in states[1:]:
        if state.plan.digest != first.plan.digest or state.order != first.order:
            raise Invalid("positions of different epochs, streams or settings cannot be merged: take those of one run")
        if state.epoch != first.epoch:
            raise Invalid(
                f"positions of epochs {first.epoch} and {state.epoch} cannot be merged: save those of all ranks at the "
                "same step"
            )
        if state.shards != first.shards:
            raise Invalid(f"a position of {state.shards} shards and one of {first.shards} cannot be merged")
    found = sorted(state.shard for state in states)
    if found != list(range(first.shards)):
        missing = sorted(set(range(first.shards)) - set(found))[:10]
        raise Invalid(
            f"{len(states)} positions of {first.shards} shards: give one of each shard of the same run, "
            f"{f'those of {missing} are missing' if missing else 'and none twice'}"
        )
    works = [state.left() for state in sorted(states, key=lambda state: state.shard)]
    place = {piece: at for at, (piece, _) in enumerate(fresh_work(first.plan, first.order, first.epoch).items)}
    items = sorted((item for work in works for item in work.items), key=lambda item: (place[item[0]], item))
    if len({piece for piece, _ in items}) != len(items):
        raise Invalid("positions that have one piece twice: they are not of one run")
    return EpochState(
        first.plan, first.order, first.epoch, Work(tuple(items), tuple(b for work in works for b in work.blocks))
    )


def merge(*states: Any) -> dict[str, Any]:
    """Return one position for all shards of an epoch, which any number of ranks and workers may load.

    `states`: the positions of all shards of the run before, as `state_dict` returned them, each alone or nested in
    dicts and lists, as a framework's loader saves them.  Raises Invalid: one is missing, or they are of different
    epochs or settings."""
    found = list(_nested(states))
    if len(found) == 1 and found[0].get("of") == "epoch":
        return dict(found[0])
    shards: list[ShardState] = []
    for state in found:
        read = decode(state)
        if isinstance(read, EpochState):
            raise Invalid("a position of a whole epoch among those of shards: give either the one or the others")
        shards.append(read)
    return encode(merged(shards))


def _nested(found: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(found, dict):
        if MARK in found:
            yield found
            return
        found = found.values()
    elif not isinstance(found, list | tuple):
        return
    for value in found:
        yield from _nested(value)


# -- plain values ---------------------------------------------------------------------------------


def encode(state: ShardState | EpochState) -> dict[str, Any]:
    """Return a position as plain values, for JSON."""
    order = state.order
    found: dict[str, Any] = {
        MARK: VERSION,
        "of": "shard" if isinstance(state, ShardState) else "epoch",
        "plan": state.plan.to_dict(),
        "order": [order.seed, order.shuffle_rows, order.interleave],
        "epoch": state.epoch,
        "work": None if state.work is None else _work(state.work),
    }
    if isinstance(state, ShardState):
        cursor = state.cursor
        found |= {
            "shard": state.shard,
            "shards": state.shards,
            "begun": [None if one is None else list(one) for one in cursor.begun],
            "next": [cursor.item, cursor.block, cursor.number],
            "block": None if state.block is None else _block(state.block),
        }
    return found


def _work(work: Work) -> dict[str, Any]:
    return {"items": [list(item) for item in work.items], "blocks": [_block(block) for block in work.blocks]}


def _block(block: Block) -> dict[str, Any]:
    return {
        "ranges": [list(part) for part in block.ranges],
        "key": block.key,
        "rows": block.rows,
        "emitted": block.emitted,
        "mark": block.mark,
    }


def decode(found: Mapping[str, Any]) -> ShardState | EpochState:
    """Return the inverse of `encode`.  Raises Invalid: it is no position, or of a newer version."""
    if not isinstance(found, dict) or MARK not in found:
        raise Invalid(_NO_STATE)
    if found[MARK] != VERSION:
        raise Invalid(f"a position of version {str(found[MARK])[:20]}; version {VERSION} is known: upgrade Sarit")
    try:
        plan = Plan.from_dict(found["plan"])
        seed, shuffle_rows, interleave = map(as_number, found["order"])
        order = Order(seed, shuffle_rows, interleave)
        work = None if found["work"] is None else _read_work(found["work"], plan)
        whole = EpochState(plan, order, as_number(found["epoch"]), work)
        return whole if found["of"] == "epoch" else _read_shard(found, whole)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, Invalid):
            raise
        raise Invalid(_NO_STATE) from None


def _read_shard(found: Mapping[str, Any], whole: EpochState) -> ShardState:
    item, block, number = map(as_number, found["next"])
    begun = tuple(None if one is None else (as_number(one[0]), as_number(one[1])) for one in found["begun"])
    shards = as_number(found["shards"])
    fresh = whole.shard(as_number(found["shard"]), shards)
    under_way = None if found["block"] is None else _read_block(found["block"], whole.plan)
    state = replace(fresh, cursor=Cursor(begun, item, block, number), block=under_way, work=whole.work)
    work = state.own_work()
    _require(len(begun) == whole.order.interleave)
    _require(0 <= item <= len(work.items) and 0 <= block <= len(work.blocks) and number >= 0)
    open_items = [one for one in begun if one is not None]
    _require(len({one[0] for one in open_items}) == len(open_items))
    for at, offset in open_items:
        _require(0 <= at < item)
        _check_offset(whole.plan, work.items[at][0], offset)
    return state


def _read_work(found: Mapping[str, Any], plan: Plan) -> Work:
    items = tuple((as_number(piece), as_number(offset)) for piece, offset in found["items"])
    for piece, offset in items:
        _check_offset(plan, piece, offset)
    _require(len({piece for piece, _ in items}) == len(items))
    return Work(items, tuple(_read_block(block, plan) for block in found["blocks"]))


def _read_block(found: Mapping[str, Any], plan: Plan) -> Block:
    ranges = tuple((as_number(piece), as_number(start), as_number(end)) for piece, start, end in found["ranges"])
    for piece, start, end in ranges:
        _check_offset(plan, piece, start)
        _check_offset(plan, piece, end)
        _require(EDGE in (start, end) or start <= end)
    key = found["key"]
    block = Block(
        ranges,
        None if key is None else as_number(key),
        as_number(found["rows"]),
        as_number(found["emitted"]),
        as_number(found["mark"]),
    )
    _require(0 <= block.emitted <= block.rows and (block.key is None or 0 <= block.key < 1 << 63))
    _require(0 <= block.mark < 1 << 63)
    return block


def _check_offset(plan: Plan, number: int, offset: int) -> None:
    piece = plan.piece(number)
    # The last event of a piece may end in a later one.
    _require(offset == EDGE or piece.low <= offset <= piece.part.end)


def _require(holds: bool) -> None:
    if not holds:
        raise Invalid(f"{_NO_STATE}; this one contradicts itself")


def check_order(state: ShardState | EpochState, order: Order, check_plan: Callable[[Plan], None]) -> None:
    """Check that a position is of a reader with the same choices.  Raises Invalid."""
    if state.order != order:
        found = state.order
        choices = f"seed={found.seed}, shuffle_rows={found.shuffle_rows}, interleave={found.interleave}"
        raise Invalid(f"the position is of a reader with {choices}: open this one with the same")
    check_plan(state.plan)


def shard_of(state: ShardState | EpochState, shard: int, shards: int) -> ShardState:
    """Return the position of one shard.  Raises Invalid: it is of another shard, or of another number of shards."""
    if isinstance(state, EpochState):
        return state.shard(shard, shards)
    if (state.shard, state.shards) != (shard, shards):
        raise Invalid(
            f"the position is of shard {state.shard} of {state.shards}, and this is shard {shard} of {shards}: with "
            "another number of ranks or workers, collect the positions of all shards, and load "
            "sarit.training.merge(...) of them"
        )
    return state
