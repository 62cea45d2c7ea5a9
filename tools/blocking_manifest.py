"""What `tools/generate_blocking.py` makes of which asyncio class, and each exception from its rules with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXIT_ON_LOOP = frozenset({"__aexit__"})


@dataclass(frozen=True)
class Facade:
    """One blocking class.

    `attributes`: plain attributes of the asyncio object that become properties: name -> (type, docstring).
    `handles`: properties whose objects are wrapped when this one is made: name -> class.
    `lazy`: properties whose class is imported when they are first used.
    `translated`: methods whose body runs on the caller's thread; `__aexit__` always does, unless it is `delegated`.
    `on_loop`: plain methods that must run on the loop, waited for; `posted`: those not waited for.
    `opened`: methods that return an object that is to be opened first.  `hidden`: public in the asyncio class alone,
    with the reason.  `overrides`: written by hand in `overrides.py`, with the reason; those of `direct` show
    signature and docstring alone, since each object has the asyncio method itself in their place.  `doc`, `docs`:
    docstrings where the asyncio ones do not hold.
    """

    source: str
    name: str
    doc: str = ""
    attributes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    handles: Mapping[str, str] = field(default_factory=dict)
    lazy: frozenset[str] = frozenset()
    translated: frozenset[str] = frozenset()
    delegated: frozenset[str] = frozenset()
    on_loop: frozenset[str] = frozenset()
    posted: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    hidden: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    direct: Sequence[str] = ()
    docs: Mapping[str, str] = field(default_factory=dict)

    def listed(self) -> set[str]:
        """Every name the asyncio class must have."""
        sets = (self.attributes, self.handles, self.lazy, self.translated, self.delegated, self.on_loop, self.posted)
        return {name for names in sets for name in names} | self.opened | set(self.docs)

    def not_delegated(self) -> set[str]:
        """Methods of the asyncio class that get no generated method."""
        return {*self.hidden, *self.overrides}


@dataclass(frozen=True)
class Module:
    """One generated module of `sarit.client.blocking`."""

    name: str
    doc: str
    facades: Sequence[Facade]


_OPENED = "the method that makes it has opened it"
_CLIENT_CALLS = "called by the client when it ends"
_DRIVER_CALLS = "called by the segment appender"
_HOT = "the hot path: an event must not cross threads, or cost one more call"

MODULES = (
    Module(
        "client",
        """The blocking client: `client = sarit.connect("127.0.0.1:9090")`.

    with sarit.connect("127.0.0.1:9090") as client:
        client.create_scope("demo")
        client.create_stream("demo/numbers")
        with client.writer("demo/numbers") as writer:
            writer.write("one", key="a")
        for event in client.reader("demo/numbers", end="tail"):
            print(event)

It runs the asyncio client (`aio.py`) on the event loop of a background thread; every method waits for its counterpart.
""",
        [
            Facade(
                "sarit.client.aio",
                "Client",
                doc="A connection to Sarit; may be shared by threads.  `close` ends all its writers and readers.",
                handles={
                    "coordination": "Coordination",
                    "links": "Links",
                    "reader_groups": "ReaderGroups",
                    "tables": "Tables",
                },
                lazy=frozenset({"continuous", "search", "structures"}),
                opened=frozenset({"reader", "writer"}),
                hidden={"session": "shared by the asyncio parts"},
                overrides={"close": "it ends the thread of the loop, too"},
                docs={
                    "writer": """Return a writer of events, which connects with the first event.

        `write` blocks while more than `buffer_bytes` are not acknowledged.  `name` is what it notes times under; a
        random one when it is not given.

        `serializer`: encodes what is written (`sarit.serializers`); None: bytes, str and Envelopes are.  Its schema is
        registered or found here.  Raises Invalid (the registry and the stream's header do not go together), Conflict
        (the registry refuses the schema), NotFound, Unavailable.""",
                    "reader": """Return a reader of all events between two cuts.  Raises NotFound, Invalid.

        `start` and `end`: "head", "tail" (as of now), a StreamCut or its text; `end` None: follow the tail until the
        stream is sealed.  `skip_truncated`: skip what was truncated instead of raising Truncated.

        `deserializer`: decodes events (`sarit.serializers`); None: they are bytes.  `on_error`: what to do with one
        that it cannot decode: "raise" Undecodable, "skip" it, or write it to the dead-letter stream of this name.
        """,
                },
            ),
        ],
    ),
    Module(
        "streams",
        "Writers and readers of the blocking client.",
        [
            Facade(
                "sarit.client.writer.writer",
                "EventWriter",
                doc="""Writes events to one stream, exactly once each and in order per key; may be shared by threads.

    Make one with `client.writer(...)`; use it in a `with` block, or `close` it: that flushes.
    """,
                posted=frozenset({"abandon"}),
                hidden={
                    "abandon": "leaving a block by an error does it",
                    "ack": "asyncio futures; `when_durable` instead",
                    "client_closed": _CLIENT_CALLS,
                    "fail": "called by its parts",
                    "failure": "the next call raises it",
                    "bind_foreign_thread": "called by the overrides",
                    "flush_barrier": "asyncio futures; `when_durable` instead",
                    "name": "not part of the blocking client",
                    "open": _OPENED,
                    "pending_bytes": "called by the overrides",
                    "dispatch_soon": "called by the overrides",
                },
                overrides={
                    "write": _HOT,
                    "write_many": _HOT,
                    "when_durable": "a callback instead of a future",
                },
                direct=("write", "write_many"),
                docs={"drain": "Wait while more than `buffer_bytes` are not acknowledged (`write` does so by itself)."},
            ),
            Facade(
                "sarit.client.reader.reader",
                "EventReader",
                doc="""Reads one stream; for one thread at a time.

    Handing an event (or a batch) out counts as consuming it.  Events are fetched on the loop's thread and handed
    out on the caller's: a call that Ctrl-C interrupts consumes nothing.""",
                translated=frozenset({"read", "read_events", "read_arrow"}),
                posted=frozenset({"close"}),
                hidden={
                    "client_closed": _CLIENT_CALLS,
                    "next_table": "`read_arrow` calls it",
                    "open": _OPENED,
                    "take_table": "`read_arrow` calls it",
                    "waiting_events": "`read_events` calls it",
                },
            ),
            Facade(
                "sarit.client.streams.byte_streams",
                "ByteWriter",
                doc="Appends bytes to a byte stream; `close` (or the end of a `with` block) flushes.",
                posted=frozenset({"abandon"}),
                hidden={
                    "abandon": "leaving a block by an error does it",
                    "check": "called by the overrides",
                    "client_closed": _CLIENT_CALLS,
                    "drain": "`write` waits by itself",
                    "failed": _DRIVER_CALLS,
                    "progressed": _DRIVER_CALLS,
                    "sealed": _DRIVER_CALLS,
                },
                overrides={"write": "it waits only now and then, not once per call"},
            ),
            Facade(
                "sarit.client.streams.byte_streams",
                "ByteReader",
                doc="Reads bytes of a byte stream; waits at the tail.  A read that Ctrl-C interrupts consumes nothing.",
                translated=frozenset({"read", "read_exactly"}),
                on_loop=frozenset({"seek"}),
                posted=frozenset({"close"}),
                hidden={"fill": "`read` calls it", "take": "`read` calls it"},
            ),
        ],
    ),
    Module(
        "handles",
        "One stream by name, for the blocking client: scaling, batch reads, time windows.",
        [
            Facade(
                "sarit.client.streams.stream",
                "Stream",
                attributes={"name": ("StreamName", "`scope/stream`.")},
            ),
            Facade(
                "sarit.client.reader.batch",
                "BatchReader",
                attributes={"slices": ("tuple[Slice, ...]", "The pieces to read; a slice can be pickled.")},
                translated=frozenset({"read"}),
            ),
            Facade("sarit.client.streams.event_time", "TimeWindows"),
        ],
    ),
    Module(
        "links",
        "Links to other installations, for the blocking client.",
        [
            Facade("sarit.client.streams.links", "Links"),
        ],
    ),
    Module(
        "continuous",
        "Continuous queries of streams, for the blocking client.",
        [
            Facade("sarit.client.search.continuous", "ContinuousQueries"),
        ],
    ),
    Module(
        "tables",
        "Key-value tables of the blocking client.",
        [
            Facade("sarit.client.tables.table", "Tables"),
            Facade(
                "sarit.client.tables.table",
                "Table",
                doc="""One table; may be shared by threads.

    All methods raise NotFound (there is no such table), Invalid and Unavailable.""",
                attributes={"name": ("StreamName", "`scope/table`.")},
            ),
        ],
    ),
    Module(
        "transactions",
        "Transactions of the blocking client.",
        [
            Facade(
                "sarit.client.transactions.transaction",
                "TransactionalWriter",
                doc="""Begins and administers the transactions of one stream; may be shared by threads.

    Make one with `client.transactional_writer(...)`.
    """,
                hidden={"closed": "called by its transactions"},
            ),
            Facade(
                "sarit.client.transactions.transaction",
                "Transaction",
                doc="""One transaction; write to it, then commit or abort.

    As a block: commits, or aborts when an error leaves it.  May be shared by threads, as long as none writes while
    another commits.""",
                attributes={"id": ("UUID", "Names it to others, for `take_up`, `status`, `commit` and `abort`.")},
                delegated=_EXIT_ON_LOOP,
                hidden={
                    "drain": "`write` waits by itself",
                    "lost": "called by its writer",
                    "release": "called by its writer",
                },
                overrides={"write": _HOT, "write_many": _HOT},
                direct=("write", "write_many"),
            ),
        ],
    ),
    Module(
        "coordination",
        """Shared state of processes, for the blocking client.

Functions given to an update (`decide`, `change`, `apply` ...) run on the client's own thread: they must neither block
nor call the client.
""",
        [
            Facade("sarit.client.sync.coordination", "Coordination"),
            Facade(
                "sarit.client.sync.revisioned_stream",
                "RevisionedStream",
                hidden={
                    "open": "`client.coordination.revisioned` calls it",
                    "read_news": "the synchronizer calls it",
                    "wait_beyond": "followers call it",
                },
            ),
            Facade(
                "sarit.client.sync.synchronizer",
                "StateSynchronizer",
                overrides={"fetch": "it returns the state; the asyncio method returns nothing, as there may be none"},
            ),
            Facade(
                "sarit.client.sync.membership",
                "Membership",
                attributes={"name": ("str | None", "This member's name; None for one that only watches.")},
                hidden={
                    "client_closed": _CLIENT_CALLS,
                    "left_seconds": "the election calls it",
                    "open": _OPENED,
                    "rejoin": "the election calls it",
                    "until": "the election calls it",
                },
            ),
            Facade("sarit.client.sync.membership", "LeaderElection"),
            Facade(
                "sarit.client.sync.configuration",
                "SharedConfiguration",
                hidden={"client_closed": _CLIENT_CALLS, "open": _OPENED},
            ),
        ],
    ),
    Module(
        "searches",
        "Searches in streams, for the blocking client.",
        [
            Facade("sarit.client.search.index_search", "Searches"),
        ],
    ),
    Module(
        "structures",
        "Data structures that many processes share, for the blocking client.",
        [
            Facade("sarit.client.structures.structures", "Structures"),
            Facade(
                "sarit.client.structures.counter",
                "SharedCounter",
                attributes={"name": ("StreamName", "`scope/name`.")},
                hidden={"open": "`client.structures.counter` calls it"},
            ),
            Facade(
                "sarit.client.structures.shared_map",
                "SharedMap",
                attributes={"name": ("StreamName", "`scope/name`.")},
                hidden={"open": "`client.structures.map` calls it"},
            ),
            Facade(
                "sarit.client.structures.shared_set",
                "SharedSet",
                attributes={"name": ("StreamName", "`scope/name`.")},
                hidden={"open": "`client.structures.set` calls it"},
            ),
            Facade(
                "sarit.client.structures.shared_list",
                "SharedList",
                attributes={"name": ("StreamName", "`scope/name`.")},
                hidden={"open": "`client.structures.list` calls it"},
            ),
            Facade(
                "sarit.client.structures.shared_queue",
                "SharedQueue",
                attributes={
                    "name": ("StreamName", "`scope/name`."),
                    "lease_seconds": ("float", "How long an item belongs to its taker, unless it is renewed."),
                },
                hidden={"open": "`client.structures.queue` calls it"},
            ),
        ],
    ),
    Module(
        "groups",
        "Reader groups of the blocking client.",
        [
            Facade(
                "sarit.client.groups.reader",
                "GroupReader",
                doc="""Reads its share of what a group reads; for one thread at a time.

    Make one with `group.reader(name)`.  What is handed out counts as consumed when the next thing is asked for, or the
    reader is closed.  As a block it is closed at the end; when an error leaves the block, what was handed out last is
    read again.
    All that reads raises Conflict when the reader is not in the group any more (a reset, or it was declared offline),
    Truncated when data it was to read was truncated, Invalid when it is closed.""",
                attributes={"name": ("str", "This reader's name in the group.")},
                delegated=_EXIT_ON_LOOP,
                hidden={"client_closed": _CLIENT_CALLS, "open": _OPENED},
            ),
            Facade(
                "sarit.client.groups.group",
                "ReaderGroup",
                attributes={"name": ("str", '"scope/group".')},
            ),
            Facade("sarit.client.groups.group", "ReaderGroups"),
        ],
    ),
)
