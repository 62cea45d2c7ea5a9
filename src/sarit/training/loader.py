"""The loader: batches of a stream as columns of numpy arrays or lists, with exact positions, whatever the framework."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.client.limits import DEFAULT_RETRY_TIMEOUT_SECONDS
from sarit.core.errors import Conflict, Invalid
from sarit.core.extras import require
from sarit.core.names import StreamName
from sarit.training.access import HEAD, TAIL, OpenStream, Target, cut_text
from sarit.training.blocks import Rows, ShardReader, one_batch
from sarit.training.follow import Following, check_following, following_state
from sarit.training.frames import PrefixedFrames
from sarit.training.limits import TRAINING_BATCH_ROWS, TRAINING_INTERLEAVE, TRAINING_PIECE_BYTES
from sarit.training.settings import Settings
from sarit.training.state import EpochState, Order, ShardState, check_order, decode, encode, shard_of
from sarit.training.tensors import RAISE, SKIP, Form

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from sarit.client.core.login import Credentials, Tls
    from sarit.core.cuts import StreamCut
    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.training.frames import Frames
    from sarit.training.plan import Plan
    from sarit.training.source import Source

_NO_END: Final = 'an epoch has an end: give end="tail" (as of now), a cut or its text, or follow=True'


class _Taken:
    """Events of a block, of which some are handed out; `state` is the position behind the block."""

    def __init__(self, rows: Rows, state: ShardState) -> None:
        self.left = rows.count
        self._rows = rows
        self._state = state
        self._done = 0
        self._batch = 0  # the next of the batches, and how many of its events are handed out
        self._within = 0

    def parts(self, most: int) -> Iterator[pa.RecordBatch]:
        """Yield up to `most` events that are not handed out yet."""
        within = self._within
        for batch in self._rows.batches[self._batch :]:
            if not most:
                return
            part = batch.slice(within, most)
            within, most = 0, most - part.num_rows
            yield part

    def advance(self, count: int) -> None:
        """Count events as handed out."""
        self._done, self.left, self._within = self._done + count, self.left - count, self._within + count
        while self.left and self._within >= self._rows.batches[self._batch].num_rows:
            self._within -= self._rows.batches[self._batch].num_rows
            self._batch += 1

    def state(self) -> ShardState:
        """Return the position behind the events that are handed out."""
        return replace(self._state, block=self._rows.rest(self._done, self._state.plan))


class Batches(Iterator[dict[str, Any]]):
    """The batches of one shard, from a position on.  An iterator of one process: no child may go on with it.

    A call that fails hands out nothing, and the next one tries again.  While a block is handed out, a thread reads the
    next one."""

    def __init__(self, source: Source, state: ShardState, settings: Settings) -> None:
        self._source: Source | None = source
        self._reader = ShardReader(source, state, skip=settings.skip)
        self._settings = settings
        self._state = state  # behind everything that is handed out, where `_taken` is empty
        self._taken: deque[_Taken] = deque()
        self._ended = False
        self._thread = ThreadPoolExecutor(1, "sarit-training") if settings.prefetch else None
        self._ahead: Future[tuple[Rows | None, ShardState]] | None = None
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"Batches({self._reader!r})"

    def __reduce__(self) -> Any:
        raise Invalid("batches that were begun cannot be pickled: pickle the loader, or the state")

    @property
    def skipped_bytes(self) -> int:
        """How much was passed over because it was truncated."""
        return self._reader.skipped_bytes

    def __next__(self) -> dict[str, Any]:
        """Return the next batch.  Raises Truncated, Corrupt, Conflict, Invalid, Unavailable."""
        if self._process != os.getpid():
            raise Invalid(
                f"these batches belong to process {self._process}, from which this one was forked: begin new ones "
                "here, from the state"
            )
        wanted = self._settings.batch_rows
        self._fetch(wanted)
        parts: list[pa.RecordBatch] = []
        for one in self._taken:
            parts += one.parts(wanted - sum(part.num_rows for part in parts))
        count = sum(part.num_rows for part in parts)
        if not count or (count < wanted and self._settings.drop_last):
            self._hand_out(count)
            raise StopIteration
        values = self._settings.form.values(one_batch(parts))
        self._hand_out(count)
        return values

    def _hand_out(self, count: int) -> None:
        while count:
            first = self._taken[0]
            some = min(count, first.left)
            first.advance(some)
            count -= some
            self._state = first.state()
            if not first.left:
                self._taken.popleft()

    def _fetch(self, wanted: int) -> None:
        """Have `wanted` events, or all that are left.  Raises what reading raises, and has what came before then."""
        while not self._ended and sum(one.left for one in self._taken) < wanted:
            rows, state = self._next_rows()
            if rows is None:
                self._ended, self._state = True, state if not self._taken else self._state
                self.close()
            else:
                self._taken.append(_Taken(rows, state))

    def _next_rows(self) -> tuple[Rows | None, ShardState]:
        if self._source is None:
            raise Invalid("these batches are closed: begin new ones, from the state")
        if self._thread is None:
            return self._reader.fetch()
        ahead = self._ahead or self._thread.submit(self._reader.fetch)
        self._ahead = None
        try:
            found = ahead.result()
        except BaseException:
            if not ahead.done():  # Ctrl-C: what it reads is the next call's
                self._ahead = ahead
            raise
        if found[0] is not None:
            self._ahead = self._thread.submit(self._reader.fetch)
        return found

    def state(self) -> ShardState:
        """Return the position after the last batch that was handed out."""
        return self._state

    def close(self) -> None:
        """Stop reading, and release the connections."""
        source, self._source = self._source, None
        if source is None or self._process != os.getpid():
            return
        # A thread that waits for the node ends with the connections.
        source.close()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._reader.close()

    def __del__(self) -> None:
        if getattr(self, "_source", None) is not None:
            with suppress(Exception):  # the garbage collector may run on the very thread that would have to close
                self.close()


class StreamLoader:
    """Everything between two cuts of a stream, as batches of numpy arrays or lists, epoch after epoch.

        loader = StreamLoader("shop/images", dtype="uint8", shape=(28, 28), batch_rows=256, shuffle_rows=10_000)
        for batch in loader:
            train(batch["value"])  # an array of 256 x 28 x 28

    It connects when it is iterated, and can be pickled.  `start`, `end`: "head", "tail" (as of now), a cut or its text;
    with several ranks they must be cuts, the same for all.  With `frames` the stream is a byte stream, and they are
    offsets.

    `follow`: there is no end and no epoch: the events after `start`, as they are stored, until the stream is sealed.  A
    batch then has what is there, and each of several shards reads everything.

    `batch_rows`: events of a batch; the last one of an epoch has fewer (`drop_last`: it is left out).
    `shuffle_rows`: how many events are shuffled in memory at once; 0: each shard has its events as they are stored.
    `interleave`: from how many places of the stream those events come.  `seed`: decides all orders, together with the
    number of the epoch (`set_epoch`).  `rank`, `world_size`: which of how many processes this is, each with a share of
    the events.  `piece_bytes`: into which pieces the stream is divided for that.

    `prefetch`: a thread reads the next events while the caller computes; at most two blocks are in memory then.

    `dtype`, `shape`: each event is an array of this form.  `columns`: a reader of payloads
    (`sarit.serializers.payload_columns`).  Without them, values are bytes.  `envelope`: events are envelopes; their
    payloads count.  `positions`: batches have the columns `segment` and `offset`, too.  `on_error`: "skip" leaves out
    events that do not fit, instead of raising Corrupt.  `on_truncated`: "skip" leaves out what was truncated since the
    epoch was planned, instead of raising Truncated; `skipped_bytes` counts it.

    Raises Invalid; iterating raises NotFound, Truncated, Corrupt, Unavailable, Conflict (it is not the stream of the
    state that was loaded)."""

    def __init__(
        self,
        stream: str | StreamName,
        start: StreamCut | str | int = HEAD,
        end: StreamCut | str | int | None = TAIL,
        *,
        address: str | None = None,
        follow: bool = False,
        batch_rows: int = TRAINING_BATCH_ROWS,
        drop_last: bool = False,
        shuffle_rows: int = 0,
        interleave: int = TRAINING_INTERLEAVE,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        piece_bytes: int = TRAINING_PIECE_BYTES,
        dtype: str | None = None,
        shape: tuple[int, ...] = (),
        columns: PayloadColumns | None = None,
        envelope: bool = False,
        positions: bool = False,
        on_error: str = RAISE,
        on_truncated: str = RAISE,
        frames: Frames | None = None,
        prefetch: bool = True,
        retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
    ) -> None:
        require("arrow", "A reader for training")
        name = StreamName.parse(stream) if isinstance(stream, str) else stream
        if follow:
            _check_follow(end, shuffle_rows)
            end = TAIL
        if end is None:
            raise Invalid(_NO_END)
        if batch_rows < 1:
            raise Invalid(f"batches of {batch_rows} events: give 1 or more (batch_rows)")
        if on_truncated not in (RAISE, SKIP):
            raise Invalid(f"on_truncated={on_truncated}: give raise or skip")
        if not 0 <= rank < world_size:
            raise Invalid(f"there is no rank {rank} in a world of {world_size}")
        if frames is None and (isinstance(start, int) or isinstance(end, int)):
            raise Invalid("offsets are for byte streams: give frames, or cuts instead of offsets")
        self.stream = name
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.follow = follow
        self._open = OpenStream(
            Target(address, retry_timeout, credentials, tls),
            name,
            start if isinstance(start, int) else cut_text(start, name),
            end if isinstance(end, int) else cut_text(end, name),
            frames,
        )
        if world_size > 1 and not self._open.fixed and not follow:
            raise Invalid(
                'with several ranks, each would see another head and tail: let one ask client.cut(STREAM, "tail"), and '
                "give the text of that cut to all"
            )
        self._order = Order(seed, shuffle_rows, interleave)
        self._piece_bytes = piece_bytes
        form = Form(dtype, tuple(shape), columns, envelope, positions, on_error)
        self._settings = Settings(form, batch_rows, drop_last, on_truncated == SKIP, prefetch)
        self._plan: Plan | None = None
        self._pending: dict[str, Any] | None = None  # a state that was loaded, until the next iteration takes it
        self._batches: Batches | Following | None = None

    def __repr__(self) -> str:
        start, end = (text[:20] for text in self._open.between)
        return f"{type(self).__name__}({self.stream}, {start} to {end}, rank {self.rank} of {self.world_size})"

    def __getstate__(self) -> dict[str, Any]:
        # The plan goes along: a worker would see another tail.
        return {**self.__dict__, "_plan": None if self.follow else self.plan(), "_batches": None}

    def plan(self) -> Plan:
        """Return what an epoch consists of, asked for once.  Raises NotFound, Truncated, Invalid, Unavailable."""
        if self.follow:
            raise Invalid(f"who follows {self.stream} has no epochs: only a reader between two cuts has")
        if self._plan is None:
            self._plan = self._open.plan(self._piece_bytes)
        return self._plan

    @property
    def unsettled(self) -> bool:
        """Whether another process would plan another epoch, because nobody has asked for the head and the tail yet."""
        return not (self.follow or self._open.fixed or self._plan is not None)

    @property
    def begun(self) -> bool:
        """Whether this process has begun to iterate."""
        return self._batches is not None

    @property
    def total_bytes(self) -> int:
        """How much an epoch has to read, of all ranks, headers of events included."""
        return self.plan().total_bytes

    @property
    def skipped_bytes(self) -> int:
        """How much the last iteration has passed over because it was truncated."""
        return 0 if self._batches is None else self._batches.skipped_bytes

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration begin this epoch, in its order; or go on in it, if the state loaded last is of it."""
        if epoch < 0:
            raise Invalid(f"epoch {epoch}: give 0 or more")
        if epoch != self.epoch and not self.follow:
            self._pending = None
        self.epoch = epoch

    @property
    def has_state(self) -> bool:
        """Whether a state was loaded that no iteration has taken."""
        return self._pending is not None

    def drop_state(self) -> None:
        """Forget a state that was loaded, and that no iteration has taken."""
        self._pending = None

    def __iter__(self) -> Batches | Following:
        """Return the batches of this rank."""
        return self.shard(self.rank, self.world_size)

    def shard(self, shard: int, shards: int) -> Batches | Following:
        """Return the batches of one of several shards, from the state that was loaded, or else from the beginning.

        Raises Invalid (the state is of another shard), NotFound, Conflict (of another stream), Unavailable."""
        if shards > 1 and isinstance(self._open.frames, PrefixedFrames) and not self.follow:
            raise Invalid(
                f"frames with a length before each have one reader, and these are {shards} (ranks times workers): read "
                "them by one, or use events or frames of equal length"
            )
        if self._batches is not None:
            self._batches.close()
        if self.follow:
            self._batches = self._followed(shard, shards)
            return self._batches
        state = self._position(shard, shards)
        source = self._open.source()
        try:
            creation = source.creation()
            if creation != state.plan.creation:
                raise Conflict(
                    f"{self.stream} is not the stream of the state, but was deleted and made again: begin without a "
                    "state"
                )
        except BaseException:
            source.close()
            raise
        self._pending = None
        self._batches = Batches(source, state, self._settings)
        return self._batches

    def _followed(self, shard: int, shards: int) -> Following:
        state = self._pending or following_state(self.stream, str(self._open.start), "", shard, shards)
        if state["shards"] and (state["shard"], state["shards"]) != (shard, shards):
            raise Invalid(
                f"the position is of shard {state['shard']} of {state['shards']}, and this is shard {shard} of "
                f"{shards}: who follows a stream cannot change the number of ranks or workers on the way"
            )
        followed = Following(self._open, state["cut"], state["creation"], self._settings, shard, shards)
        self._pending = None
        return followed

    def _position(self, shard: int, shards: int) -> ShardState:
        if self._pending is not None:
            return shard_of(decode(self._pending), shard, shards)
        return EpochState(self.plan(), self._order, self.epoch).shard(shard, shards)

    def _check_plan(self, plan: Plan) -> None:
        if plan.stream != self.stream:
            raise Invalid(f"the state is of stream {plan.stream}, and this is a reader of {self.stream}")
        if plan.between != self._open.between or plan.piece_bytes != self._piece_bytes:
            raise Invalid(
                f"the state is of a reader of {self.stream} with other cuts or pieces (start, end, piece_bytes): open "
                "this one with the same"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was handed out: plain values, for JSON.

        Before the first iteration it is the position of a whole epoch, which every shard may load."""
        if isinstance(self._batches, Following):
            return self._batches.state_dict()
        if self._batches is not None:
            return encode(self._batches.state())
        if self._pending is not None:
            return dict(self._pending)
        if self.follow:
            return following_state(self.stream, str(self._open.start), "", 0, 0)
        return encode(EpochState(self.plan(), self._order, self.epoch))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration go on at a position, of `state_dict` or of `sarit.training.merge`.

        Raises Invalid: it is of another stream, seed or order."""
        found = None
        if self.follow:
            check_following(state, self.stream)
        else:
            found = decode(state)
            check_order(found, self._order, self._check_plan)
        if self._batches is not None:
            self._batches.close()
            self._batches = None
        self._pending = dict(state)
        if found is not None:
            self._plan, self.epoch = found.plan, found.epoch

    def close(self) -> None:
        """Stop reading; a later iteration begins again."""
        if self._batches is not None:
            self._batches.close()


def _check_follow(end: StreamCut | str | int | None, shuffle_rows: int) -> None:
    if end not in (None, TAIL):
        raise Invalid("who follows a stream gives no end: leave out end, or follow")
    if shuffle_rows:
        raise Invalid("who follows a stream has its events as they are stored: leave out shuffle_rows, or follow")
