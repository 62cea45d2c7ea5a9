"""Settings that many processes share: names with JSON values.  Changes are applied in one order everywhere.

Format of the stream (a synchronizer's; the values are JSON in UTF-8):

    initial   {"version": 1, "values": {"limit": 10}}
    update    {"set": {"limit": 11}, "remove": ["old"]}
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.iteration import Pulled
from sarit.client.limits import MAX_CONFIGURATION_BYTES
from sarit.client.session.guard import guarded
from sarit.client.sync.synchronizer import StateFollower
from sarit.core.bounded_json import parse_json
from sarit.core.errors import Corrupt, Invalid, SaritError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from sarit.client.session.session import Session
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.client.sync.synchronizer import StateSynchronizer

log = logging.getLogger(__name__)

VERSION: Final = 1
Values = dict[str, Any]


def encode(values: Mapping[str, Any]) -> bytes:
    """Return the initial state.  Raises Invalid when a value is not JSON, or all are too long together."""
    data = _dumps({"version": VERSION, "values": values})
    if len(data) > MAX_CONFIGURATION_BYTES:
        raise Invalid(f"the settings have {len(data)} bytes together; the maximum is {MAX_CONFIGURATION_BYTES}")
    return data


def decode(data: bytes) -> Values:
    """Settings of `encode`'s bytes.  Raises Corrupt."""
    try:
        found = parse_json(data)
        if found["version"] != VERSION:
            raise Corrupt(
                f"the settings have version {found['version']}; version {VERSION} is known: update this program"
            )
        return dict(found["values"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Corrupt("these bytes are not shared settings") from None


def apply(values: Values, update: bytes, _: Revision) -> Values:
    """Return the settings after an update.  Raises Corrupt."""
    try:
        found = parse_json(update)
        removed = set(found["remove"])
        return {name: value for name, value in {**values, **found["set"]}.items() if name not in removed}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Corrupt("this is not an update of shared settings") from None


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes | None:
    """Return the update that leads from one to the other; None when they are equal.  Raises Invalid as `encode`
    does."""
    if any(not isinstance(name, str) for name in after):
        raise Invalid("the name of a setting must be text")
    encode(after)
    changed = {name: after[name] for name in after if name not in before or _dumps(before[name]) != _dumps(after[name])}
    removed = sorted(name for name in before if name not in after)
    return _dumps({"set": changed, "remove": removed}) if changed or removed else None


def _dumps(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"a setting is not JSON: {error}") from None


@guarded("_session", local=("close", "get"), unguarded=("client_closed",))
class SharedConfiguration:
    """A copy of shared settings that follows all changes.  Create one with
    `client.coordination.shared_configuration`."""

    def __init__(self, session: Session, shared: StateSynchronizer[Values]) -> None:
        self._session = session
        self._shared = shared
        self._follower = StateFollower(shared)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"SharedConfiguration({self._shared!r})"

    async def open(self, defaults: Mapping[str, Any]) -> SharedConfiguration:
        """Fetch; the first process of all writes `defaults`.  Raises Invalid, NotFound, Unavailable."""
        await self._shared.initialize(encode(defaults))
        self._session.register(self)
        self._task = self._session.background.spawn(self._run(), f"follow {self._shared.stream.stream}")
        return self

    @property
    def values(self) -> dict[str, Any]:
        """All settings as last fetched: a copy."""
        return copy.deepcopy(self._shared.state)

    @property
    def version(self) -> int:
        """Rises with every change, and may rise without one; equal versions mean equal settings in every process."""
        return self._shared.revision.offset

    def get(self, name: str, default: Any = None) -> Any:
        """Return one setting as last fetched."""
        return copy.deepcopy(self._shared.state.get(name, default))

    async def refresh(self) -> None:
        """Fetch the changes made before this call."""
        await self._shared.fetch()
        self._follower.notify()

    async def edit(self, change: Callable[[dict[str, Any]], object]) -> bool:
        """Let `change` modify a copy of the newest settings and write the difference.  Returns whether there was one.

        `change` is called again when another process wrote first; an error it raises changes nothing.
        Raises Invalid (not JSON, too long), Unavailable (it may have been written or not)."""

        def decide(values: Values) -> list[bytes]:
            after = copy.deepcopy(values)
            change(after)
            update = difference(values, after)
            return [] if update is None else [update]

        written = await self._shared.update(decide)
        self._follower.notify()
        return written

    async def set(self, name: str, value: Any) -> None:
        """Set one setting unconditionally.  Raises as `edit` does."""
        await self.edit(lambda values: values.__setitem__(name, value))

    async def remove(self, name: str) -> bool:
        """Remove one setting.  Returns whether there was one.  Raises as `edit` does."""
        return await self.edit(lambda values: values.pop(name, None))

    async def changed(self, since: int) -> int:
        """Wait for a `version` other than `since`, and return it.  Raises the failure that ended the following."""
        return await self._follower.until(lambda: None if self.version == since else self.version)

    def watch(self) -> AsyncIterator[dict[str, Any]]:
        """Return the settings now, and after every change; changes in quick succession may be seen as one."""
        seen: int | None = None

        async def pull() -> Values:
            nonlocal seen
            if seen is not None:
                await self.changed(seen)
            seen = self.version
            return self.values

        return Pulled(pull)

    async def close(self) -> None:
        """Stop following."""
        self._session.unregister(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._follower.end()

    def client_closed(self) -> None:
        """End the waits for changes with Invalid, because the client is closed."""
        self._follower.end(Invalid("the client was closed"))

    async def __aenter__(self) -> SharedConfiguration:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self) -> None:
        try:
            while True:
                await self._follower.wait(None)
                await self.refresh()
        except Exception as error:  # after any error, or waits for a change would never end
            log.warning(
                "the shared configuration of %s ends: %s",
                self._shared.stream.stream,
                error,
                exc_info=not isinstance(error, SaritError),
            )
            self._follower.end(error)
