"""Bounds and intervals of links, by name, unit last."""

from __future__ import annotations

from typing import Final

from sarit.core.limits import KIB, MIB

# The version of the messages between the two sides of a link.
MIRROR_PROTOCOL: Final = 1

# The random ids of links and of promotions.
LINK_ID_BYTES: Final = 16

# How many bytes one read or write between the sides carries ...
MIRROR_BATCH_BYTES: Final = MIB
# ... and how many streams one call names.
MAX_MIRROR_STREAMS_PER_CALL: Final = 500
# The longest round of a stream without transactions.
MIRROR_ROUND_BYTES: Final = 64 * MIB
# A round is appended at once, and not staged, if it is of one segment and at most so long.
MAX_DIRECT_BYTES: Final = 256 * KIB
# How often a promotion, or a fence, begins again because others changed the stream.
PROMOTION_ATTEMPTS: Final = 20
# How many bytes one call copies into a stream that keeps what a mirror gives up.
KEPT_COPY_BYTES: Final = 32 * MIB

# -- the copier
# All bytes of a link that are read and not yet written ...
MIRROR_IN_FLIGHT_BYTES: Final = 8 * MIB
# ... in pieces of at least this, however slow the link is.
MIN_MIRROR_PIECE_BYTES: Final = 4 * KIB
# What a message says of one segment beside its bytes, for the bound on a link's speed.
MIRROR_ITEM_BYTES: Final = 64
# For how long a link of a given speed copies before what it copied counts.
MIRROR_ROUND_SECONDS: Final = 2
# How many batches of one priority class are under way ...
MIRROR_BATCHES_AT_ONCE: Final = 4
# ... how many long rounds in each, and how many pieces of one of these.
MIRROR_LONG_ROUNDS_AT_ONCE: Final = 4
MIRROR_PIECES_AT_ONCE: Final = 4
# How long a call waits for streams to grow, and how many such calls there are for the scopes of a link.
MIRROR_GROWN_SECONDS: Final = 20.0
MIRROR_GROWN_CALLS: Final = 64
# Pauses between such calls, so that streams that grow now and then share a batch: by stream, and at most.
MIRROR_GATHER_SECONDS_PER_STREAM: Final = 0.2
MAX_MIRROR_GATHER_SECONDS: Final = 1.0
# How often scopes, and the streams of each scope, are listed again.
MIRROR_SCOPES_SECONDS: Final = 15.0
MIRROR_STREAMS_SECONDS: Final = 300.0
# How old the facts of a stream may be when its version is another one.
MIRROR_FACTS_SECONDS: Final = 5.0
# How often the source learns what it need not hold any more.
MIRROR_HOLD_SECONDS: Final = 30.0
# The same while the source holds as much as it may, so that its writers wait no longer than they must, and while there
# are streams of which it holds nothing yet.
MIRROR_FULL_HOLD_SECONDS: Final = 2.0
# How often it is measured what the source holds for a link, and how long the pause is at least, in times of the last
# measurement; the same pause while it is full.
HOLD_MEASURE_SECONDS: Final = 10.0
HOLD_MEASURE_PAUSE: Final = 20
FULL_HOLD_MEASURE_SECONDS: Final = 2.0
# The part of the most bytes at which the source is not full any more, and to which what is given up leads.
HOLD_FULL_UNTIL: Final = 0.9
# How often a target is asked whether mirrors that do not grow are promoted.
MIRROR_STATES_SECONDS: Final = 10.0
# How often what goes with streams is copied: tables, schemas; and recorded cuts.
MIRROR_ATTACHED_SECONDS: Final = 10.0
MIRROR_CUTS_SECONDS: Final = 60.0
# Pauses until a mirror is asked that another controller works on, and a source for a moment without a commit.
MIRROR_BUSY_SECONDS: Final = 1.0
MIRROR_MOMENT_SECONDS: Final = 0.5
# Pauses after errors: of a link, and of one stream.
MIRROR_RETRY_SECONDS: Final = 0.5
MAX_MIRROR_RETRY_SECONDS: Final = 30.0
MIRROR_STREAM_RETRY_SECONDS: Final = 5.0
MAX_MIRROR_STREAM_RETRY_SECONDS: Final = 300.0
# How often a copier checks whether all of a link is copied, or promoted.
MIRROR_END_POLL_SECONDS: Final = 0.2
# A time that is shorter is over, but for rounding; timers measure none that is shorter than the second.
ROUNDING_SECONDS: Final = 1e-6
SHORTEST_TIMER_SECONDS: Final = 1e-3

# -- what goes with streams ----------------------------------------------------------------------
# How many tables, or reader groups, one page of a scope's has.
MIRROR_TABLES_PER_PAGE: Final = 50
# How many rows, and how many bytes of them, one call brings at most: a row and a batch may be longer than the aim.
MAX_MIRROR_ROWS: Final = 10_000
MAX_MIRROR_ROWS_BYTES: Final = 4 * MIB
# How often a change at a position is tried again when others change the table at the same time.
MAX_TABLE_COPY_ATTEMPTS: Final = 20
# The bytes of a reader group's state that are read for its position: its readers compact it long before.
MAX_GROUP_STATE_BYTES: Final = 32 * MIB
# The generation of a reader group that a source may name: far below what its record holds, far above what happens.
MAX_GROUP_GENERATION: Final = 1 << 48
# How many recorded cuts one call carries, about.
MIRROR_CUTS_PER_CALL: Final = 5_000
# The changes of a table during its comparison that are applied at its end; with more it is compared again.
MAX_COMPARISON_TAIL_BYTES: Final = 16 * MIB
# How many calls one round spends on a partition.
TABLE_ROUND_CALLS: Final = 200
# Of how many tables a copier remembers that their mirrors are equal: of any more it asks in each round.
MAX_EQUAL_TABLES: Final = 100_000

# -- links
# How many links one installation may have, those that end in it included.
MAX_LINKS: Final = 256
# How many of them may be those of other installations, which no administrator of this one has created ...
MAX_PASSIVE_LINKS: Final = 128
# ... and how many of these may write into one scope: whoever may write one scope cannot use up those of others.
MAX_PASSIVE_LINKS_OF_SCOPE: Final = 16
# The name of a link, so that it fits with a suffix into the names of its stream and of its job.
MAX_LINK_NAME_CHARACTERS: Final = 48
# An address, a path, a reference to a password.
MAX_LINK_TEXT_CHARACTERS: Final = 512
MAX_LINK_GLOBS: Final = 64
MAX_LINK_GLOB_CHARACTERS: Final = 512
# Priority classes are as far from 0 as this.
MAX_LINK_PRIORITY: Final = 100
# A link that is slower than this could not send a single batch within the time of a call.
MIN_LINK_BYTES_PER_SECOND: Final = 8 * KIB
MAX_LINK_BYTES_PER_SECOND: Final = 1 << 40
# A hold below this would stop writers at any pause of the link.
MIN_HOLD_BYTES: Final = MIB
MAX_HOLD_BYTES: Final = 1 << 50
# Of how many failing streams the status of a link tells why ...
MAX_LINK_PROBLEMS: Final = 20
# ... in texts of at most this length.
MAX_LINK_NOTE_CHARACTERS: Final = 400
# How long the creation of a link waits for its peer, which may be away ...
PEER_CHECK_SECONDS: Final = 5.0
# ... and how long one call promotes mirrors before it answers.
LINK_PROMOTE_SECONDS: Final = 5.0

# -- messages between the sides
# The length of the ids of links, lineages and creations.
MIRROR_ID_BYTES: Final = 16
# The most bytes that one message between the sides carries for reads and writes, before compression ...
MAX_MIRROR_DATA_BYTES: Final = 4 * MIB
# ... and the size at which a list of facts, offers or rounds is cut: one more entry may follow.  Requests have
# MAX_API_REQUEST_BYTES.
MIRROR_MESSAGE_BYTES: Final = 2 * MIB
# On a slow network a batch gets shorter, so that it is answered in time, but not below this.
MIN_MIRROR_BATCH_BYTES: Final = 32 * KIB
# The longest list of installations that a stream came through, and of its promotions.
MAX_MIRROR_PATH: Final = 16
MAX_MIRROR_LINEAGES: Final = 256
# Compression that saves less than this share is not used, and not tried again for so many batches.
MIN_COMPRESSION_SHARE: Final = 0.05
COMPRESSION_REST_BATCHES: Final = 15
# How many calls of peers wait for growth at once; the others are answered without waiting.
MAX_MIRROR_WAITS: Final = 500
# Of how many links and scopes a controller knows whether its last reply about growth arrived; of others, all streams
# may have grown.
MAX_GROWN_REPLIES: Final = 20_000
# How long one call between the sides may take, and a wait for growth at most.
MIRROR_CALL_SECONDS: Final = 60.0
MAX_MIRROR_WAIT_SECONDS: Final = 30.0
# How many reads and writes of peers a controller carries out at once, each with MAX_MIRROR_DATA_BYTES in memory.
MAX_MIRROR_TRANSFERS: Final = 16

# -- the source ---------------------------------------------------------------------------------
# How many segments of a stream's history one offer describes, some 30 bytes each; a longer history comes in pages ...
MAX_OFFER_SEGMENTS: Final = 4096
# ... and how many the offers of one reply describe together.
MAX_OFFERED_SEGMENTS_PER_REPLY: Final = 16_384
# For how long in all a source waits for a moment in which no transaction is half merged, and how often it looks.
CLEAN_MOMENT_PAUSES_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# How many streams a source keeps decoded, in some 2 KB each.
MAX_STREAMS_KNOWN: Final = 20_000
# Of how many streams a source remembers since when a mirror is behind, and how often it reads that in the timeline.
MAX_STREAMS_BEHIND: Final = 20_000
BEHIND_INTERVAL_MS: Final = 60_000

# -- the target ---------------------------------------------------------------------------------
# The most segments in the epochs of one round, and in a cut: they are stored with the mirror.
MAX_ROUND_SEGMENTS: Final = 8192
# Offsets, times and versions that a record can hold.
MAX_MIRROR_OFFSET_BYTES: Final = 2**62 - 1
# How often staging begins again because of others.
MAX_STAGING_ATTEMPTS: Final = 20
# How many streams one call works on at once.
MIRRORS_AT_ONCE: Final = 32
# How often a change of a mirror begins again because others changed the stream.
MIRROR_TRIES: Final = 50
# Of how many links and scopes a target remembers that they are in the table of links.
MAX_LINK_SCOPES_SEEN: Final = 4096

# Stores are asked which segments have grown this often, or so much less often that it takes 2 % of a core ...
GROWN_INTERVAL_SECONDS: Final = 0.1
GROWN_PAUSE_FACTOR: Final = 50
# ... but not less often than this.
MAX_GROWN_INTERVAL_SECONDS: Final = 2.0
# How often the streams of a scope that has changed are compared, at least and at most.
SCOPE_SCAN_INTERVAL_SECONDS: Final = 1.0
MAX_SCOPE_SCAN_INTERVAL_SECONDS: Final = 30.0
# How many grown streams are remembered for one link and scope, and named in one reply.
MAX_GROWN_STREAMS: Final = 20_000
MAX_GROWN_STREAMS_PER_REPLY: Final = 2000
# For how many links and scopes they are remembered.
MAX_GROWTH_WATCHERS: Final = 4096
# How many are remembered for all of them together, in some 100 bytes each.
MAX_GROWN_STREAMS_OF_ALL: Final = 200_000
# How many segments that have grown are remembered while no link waits.
MAX_GROWN_SEGMENTS: Final = 20_000
# The rows of how many mirrors a target has decoded.
MAX_MIRRORS_SEEN: Final = 16_384
