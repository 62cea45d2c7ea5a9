"""The pieces of an epoch as tables of Arrow: what the readers of Ray and Hugging Face hand out, one task or shard each.

Tables of a piece always have the same lengths, whatever the network delivers: a reader that resumes within a piece
counts events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.client.limits import DEFAULT_RETRY_TIMEOUT_SECONDS
from sarit.core.errors import Conflict, Invalid
from sarit.core.extras import require
from sarit.core.names import StreamName
from sarit.training.access import OpenStream, Target, cut_text
from sarit.training.blocks import PieceReader, one_batch
from sarit.training.limits import TRAINING_BATCH_ROWS, TRAINING_BLOCK_BYTES, TRAINING_PIECE_BYTES
from sarit.training.state import EDGE
from sarit.training.tensors import RAISE, SKIP, Form

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from sarit.client.core.login import Credentials, Tls
    from sarit.core.cuts import StreamCut
    from sarit.serializers.payload_columns import PayloadColumns
    from sarit.training.frames import Frames
    from sarit.training.plan import Plan


@dataclass(frozen=True)
class PieceTables:
    """Reads pieces of an epoch, in any process; it can be pickled."""

    opened: OpenStream
    plan: Plan
    form: Form
    rows: int = TRAINING_BATCH_ROWS
    skip: bool = False

    def read(self, pieces: Iterable[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the tables of pieces, each with the number of its piece.  Raises Truncated, Corrupt, Conflict."""
        source = self.opened.source()
        try:
            if source.creation() != self.plan.creation:
                raise Conflict(f"{self.plan.stream} is not the stream of the plan, but was deleted and made again")
            for number in pieces:
                reader = PieceReader(source, self.plan.piece(number), EDGE, EDGE, skip=self.skip)
                while True:
                    parts = [batch for batch, _ in reader.take(self.rows, TRAINING_BLOCK_BYTES)]
                    if not parts:
                        break
                    yield number, self.form.table(one_batch(parts))
                reader.close()
        finally:
            source.close()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the tables."""
        return self.form.schema

    def piece_bytes(self, pieces: Iterable[int]) -> int:
        """Return about how many bytes some pieces have."""
        found = [self.plan.piece(number) for number in pieces]
        return sum(piece.high - piece.low for piece in found)


def piece_tables(
    stream: str | StreamName,
    start: StreamCut | str | int = "head",
    end: StreamCut | str | int | None = "tail",
    *,
    address: str | None = None,
    piece_bytes: int = TRAINING_PIECE_BYTES,
    batch_rows: int = TRAINING_BATCH_ROWS,
    columns: PayloadColumns | None = None,
    envelope: bool = False,
    positions: bool = False,
    on_error: str = RAISE,
    on_truncated: str = RAISE,
    frames: Frames | None = None,
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
) -> PieceTables:
    """Plan an epoch, and return the reader of its pieces; the arguments are those of `StreamLoader`.

    Raises NotFound, Truncated, Invalid, Unavailable."""
    require("arrow", "A reader for training")
    name = StreamName.parse(stream) if isinstance(stream, str) else stream
    if end is None:
        raise Invalid('a dataset has an end: give end="tail" (as of now), a cut or its text')
    if batch_rows < 1:
        raise Invalid(f"batches of {batch_rows} events: give 1 or more (batch_rows)")
    if on_truncated not in (RAISE, SKIP):
        raise Invalid(f"on_truncated={on_truncated}: give raise or skip")
    form = Form(None, (), columns, envelope, positions, on_error)
    ends: list[Any] = [which if isinstance(which, int) else cut_text(which, name) for which in (start, end)]
    opened = OpenStream(Target(address, retry_timeout, credentials, tls), name, ends[0], ends[1], frames)
    return PieceTables(opened, opened.plan(piece_bytes), form, batch_rows, on_truncated == SKIP)
