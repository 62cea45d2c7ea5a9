"""How a generation of a reader group begins: its configuration from the caller's arguments, and its initial state.

Creation and every configuration change take two steps: the controller stores the configuration, then an initial state
of its generation is written.  A process may be lost between the two; `adopt_generation` completes the second step.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sarit.client.core.segments import segment_infos, tail_cut
from sarit.client.groups import calls, codec, stream_cuts
from sarit.client.groups.position import Checkpoint, CutLike
from sarit.client.groups.shared_state import GroupName, SharedState
from sarit.client.groups.state import Init
from sarit.client.groups.values import GroupConfig, GroupSegment, Retention
from sarit.client.limits import MAX_GROUP_CHECKPOINT_SECONDS, MIN_GROUP_CHECKPOINT_SECONDS
from sarit.core.cuts import StreamCut, from_text
from sarit.core.errors import Exists, Invalid
from sarit.core.names import is_user_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import Cut, Offsets
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName

MAX_ATTEMPTS: Final = 16
_NEW_ID: Final = bytes(16)
_RETENTIONS: Final = {"none": Retention.NONE, "manual": Retention.MANUAL, "checkpoint": Retention.AUTOMATIC}


def retention(name: str) -> Retention:
    """Return the retention that a user names.  Raises Invalid."""
    if name not in _RETENTIONS:
        raise Invalid(f"{name!r} is no retention of a reader group: {', '.join(_RETENTIONS)}")
    return _RETENTIONS[name]


def checkpoint_ms(seconds: float | None) -> int:
    """Seconds as the configuration has them; None: no automatic checkpoints.  Raises Invalid."""
    if seconds is None:
        return 0
    if not MIN_GROUP_CHECKPOINT_SECONDS <= seconds <= MAX_GROUP_CHECKPOINT_SECONDS:
        bounds = f"{MIN_GROUP_CHECKPOINT_SECONDS} to {MAX_GROUP_CHECKPOINT_SECONDS:.0f} s"
        raise Invalid(f"a checkpoint every {seconds} s: it must be {bounds}, or None")
    return round(seconds * 1000)


async def resolve_bounds(
    session: Session, streams: Sequence[StreamName], where: CutLike
) -> dict[StreamName, Cut | None]:
    """Return the offsets at which to begin, or to end, in each stream.  Raises NotFound, Invalid (a cut of another
    stream)."""
    if where is None or where == "head":
        return dict.fromkeys(streams)
    if where == "tail":
        return {stream: dict((await tail_cut(session, stream)).positions) for stream in streams}
    cuts = cuts_by_stream(where)
    for stream in cuts:
        if stream not in streams:
            raise Invalid(f"a cut of {stream}, which the group does not read")
    return {stream: dict(cuts[stream].positions) if stream in cuts else None for stream in streams}


def cuts_by_stream(to: CutLike) -> dict[StreamName, StreamCut]:
    """Return the cuts that a caller names, by stream.  Raises Invalid."""
    if isinstance(to, str):
        to = from_text(to)
    if to is None:
        return {}
    if isinstance(to, StreamCut):
        return {to.stream: to}
    return dict(to.cuts if isinstance(to, Checkpoint) else to)


async def create_group(session: Session, name: GroupName, config: GroupConfig) -> tuple[SharedState, bool]:
    """Create a group, or complete its creation.  Returns its state, and whether this call wrote that.

    An existing group retains its configuration.  Raises NotFound (scope, a stream), Invalid, Exists (there is one, of
    other streams)."""
    if not is_user_name(name.group):
        raise Invalid(f"{name.group!r} is no name for a reader group: letters, digits, '.' and '-', at most 250")
    if not config.starts:
        raise Invalid(f"reader group {name} would read no stream: name one at least")
    # Choose the id here, as the Java client does: a call repeated after a lost reply asks for the same group.
    if config.group_id == _NEW_ID:
        config = replace(config, group_id=session.env.random.bytes(16), generation=0)
    _check_order(config)
    # Check the streams before anything is stored, because the controller does not.
    for stream in config.starts:
        get_config = functools.partial(session.controller.stream_config, stream)
        await session.with_retry(get_config)
    # The controller decides: of several creators one configuration is in force, and all continue with it.
    in_force = await calls.create(session, name.scope, name.group, config)
    # Other differences are no error: an existing group retains its configuration.
    if set(in_force.starts) != set(config.starts):
        raise Exists(f"reader group {name} exists and reads {', '.join(map(str, sorted(in_force.starts)))}")
    shared = await SharedState.open(session, name)
    if shared.synchronizer.known:
        return shared, False
    # Initialize from the configuration in force, not from ours.  If the creator is lost before this step, whoever
    # creates the group next completes it.
    new = await shared.synchronizer.initialize(codec.encode(await initial(session, in_force)))
    return shared, new


def _check_order(config: GroupConfig) -> None:
    """Raises Invalid when a stream would end before it begins."""
    for stream, end in config.ends.items():
        start = config.starts.get(stream)
        if stream not in config.starts:
            raise Invalid(f"an end was given for {stream}, which the group does not read")
        for segment, offset in (end or {}).items():
            if 0 <= offset < (start or {}).get(segment, 0):
                raise Invalid(f"{stream} would end before it begins, in {stream.segment(segment)}")


async def initial(session: Session, config: GroupConfig) -> Init:
    """Return the initial state of a generation.  Raises NotFound (a stream)."""
    start: dict[GroupSegment, int] = {}
    for stream, cut in config.starts.items():
        get_head = functools.partial(session.controller.head_segments, stream)
        # The head is asked for now: without a cut a new generation begins at what is left, not at what was there when
        # the group was created.
        offsets = cut or await session.with_retry(get_head) or {}
        start.update({GroupSegment(stream, segment): offset for segment, offset in sorted(offsets.items())})
    return Init(config, start, config.end_offsets())


def end_cuts(config: GroupConfig) -> list[StreamCut | None]:
    """Return the cuts at which the group ends."""
    return [None if cut is None else StreamCut(stream, cut) for stream, cut in config.ends.items()]


async def unread_bytes_after(session: Session, positions: Offsets, ends: Mapping[StreamName, StreamCut]) -> int:
    """Return the bytes between positions and ends (tails, where there are none)."""
    total = 0
    for stream, wanted in await stream_cuts.unread(session, positions, ends):
        end = ends[stream].positions if stream in ends else {}
        # Deleted segments have no information, and count nothing.
        for segment, info in (await segment_infos(session, stream, list(wanted))).items():
            # What was truncated counts as read: nobody can read it any more.
            first = max(wanted[segment], info.start_offset)
            last = min(end.get(segment, info.end_offset), info.end_offset)
            total += max(0, last - first)
    return total


async def adopt_generation(session: Session, shared: SharedState) -> None:
    """Begin the generation that the controller has, when the author of the change was lost before it could.

    When the controller has none, the author was lost before its call, or is slow: nobody can tell which.  So the flag
    `updating` stays set.  If it were taken away, nobody would look again, and the generation of a slow author who is
    lost after its call would never begin.  The price is one call for each reader and grace period, until the next
    reset."""
    config = await calls.config_of(session, *shared.name)
    if shared.state.config.generation < config.generation:
        await begin_generation(session, shared, config)


async def begin_generation(session: Session, shared: SharedState, config: GroupConfig) -> None:
    """Write the initial state of `config`, unless the group has reached its generation meanwhile."""
    init = await initial(session, config)

    # All readers may come here at once: the condition lets one of them write.
    def replace_older(state: GroupState) -> list[Init]:
        return [init] if state.config.generation < config.generation else []

    await shared.update(replace_older)
