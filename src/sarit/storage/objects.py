"""Chunks as objects of an object store, through obstore (S3 and compatible stores; memory).

A chunk is one object of the same name.  One request puts it in "create" mode (`If-None-Match: *` on S3), so that no
chunk is overwritten; it is durable when the put returns.  Only `map_error` maps errors.  obstore retries a failed
request twice within a few seconds.  So a put that took effect although it failed ends as Exists, which the caller
treats like Unavailable: the content under the name is unknown, and the caller uses another name.

Warnings.  (1) The answer for a missing bucket, and on some servers for an unknown user, is 404, as for a missing
object.  It is mapped to Unavailable, because NotFound would mean to a reader that the chunk was deleted.  (2) obstore
does not sync local files: directories go through `storage/directory.py`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import obstore
from obstore import exceptions, store

from sarit.core.errors import Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.core.s3_errors import explained, is_explained, is_missing_object
from sarit.storage.checksums import DamagedChunk, too_short
from sarit.storage.limits import S3_CONNECT_SECONDS, S3_JOIN_ON_THREAD_BYTES, S3_MAX_RETRY_SECONDS, S3_REQUEST_SECONDS
from sarit.storage.names import check_name, check_prefix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config

    from sarit.env.ports import Buffer, Env, Worker
    from sarit.storage.port import Check, Observe, WriteLimiter

MAX_RETRIES: Final = 2

_CLIENT: Final[ClientConfig] = {
    "connect_timeout": timedelta(seconds=S3_CONNECT_SECONDS),
    "timeout": timedelta(seconds=S3_REQUEST_SECONDS),
}
_RETRY: Final[RetryConfig] = {
    "max_retries": MAX_RETRIES,
    "retry_timeout": timedelta(seconds=S3_MAX_RETRY_SECONDS),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}


def map_error(error: Exception, doing: str) -> SaritError:
    """Return the port's error for an error of obstore."""
    text = f"{doing}: {explained(str(error))}"
    if isinstance(error, exceptions.AlreadyExistsError):
        return Exists(text)
    if isinstance(error, exceptions.InvalidPathError):
        return Invalid(text)
    refused = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
    if refused and not is_explained(str(error)):
        return Unavailable(
            f"{doing}: the object store refuses that: are the credentials right (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY), and may they read, write and delete there?"
        )
    # A 404 may also be about the bucket or the user: only the code in the text tells them apart (Warning 1).
    if isinstance(error, (exceptions.NotFoundError, FileNotFoundError)) and is_missing_object(str(error)):
        return NotFound(text)
    return Unavailable(text)


class ObjectChunks:
    """The chunks in an object store.  `place`: the store's name, for messages."""

    def __init__(self, objects: ObjectStore, place: str, env: Env, uncached: ObjectStore | None = None) -> None:
        """`uncached`: a client for the same objects that bypasses every cache on the way; None: there is no cache."""
        self._objects = objects
        self._uncached = uncached or objects
        self._place = place
        self._joiner: Worker = env.threads.worker("chunk-join")
        self._closed = False

    def __repr__(self) -> str:
        return f"<ObjectChunks {self._place}{' closed' if self._closed else ''}>"

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        check_name(name)
        self._require()

        def join() -> bytes:
            joined = b"".join(parts)
            if observe is not None and joined:
                observe([joined])
            return joined

        if sum(map(len, parts)) < S3_JOIN_ON_THREAD_BYTES:
            data = join()
        else:  # join on a thread: a large join releases the interpreter lock, so that the event loop runs on
            data = await self._joiner.run(join)
        try:
            # Ignore the limiter, since the store shares no disk with the log.  Use one request, in which the store
            # checks that the name is free.
            await obstore.put_async(self._objects, name, data, mode="create", use_multipart=False)
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            # A put needs no object, so the bucket is missing.
            known = map_error(error, f"write chunk {name} to {self._place}")
            raise (Unavailable(str(known)) if isinstance(known, NotFound) else known) from error
        except (exceptions.BaseError, OSError) as error:
            raise map_error(error, f"write chunk {name} to {self._place}") from error

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> bytes:
        check_name(name)
        self._require()
        # HTTP has no range of zero bytes.
        if not length:
            return b""
        try:
            return await self._read(self._objects, name, offset, length, check)
        except (NotFound, DamagedChunk):
            # Read again before damage is reported, past caches: a bit may have flipped on the way, or in a cache.
            return await self._read(self._uncached, name, offset, length, check)

    async def _read(self, objects: ObjectStore, name: str, offset: int, length: int, check: Check | None) -> bytes:
        try:
            data = bytes(await obstore.get_range_async(objects, name, start=offset, length=length))
        except (exceptions.BaseError, OSError) as error:
            known = map_error(error, f"read chunk {name} of {self._place}")
            if isinstance(known, Unavailable):
                # Check the length: a chunk that is too short is Corrupt, which no retry would cure.
                await self._refuse_beyond(name, offset + length)
            raise known from error
        if len(data) != length:
            raise too_short(name, offset + len(data), offset + length)
        if check is None:
            pass
        elif length < S3_JOIN_ON_THREAD_BYTES:
            check(data)
        else:
            await self._joiner.run(partial(check, data))
        return data

    async def delete(self, name: str) -> None:
        check_name(name)
        self._require()
        try:
            await obstore.delete_async(self._objects, name)
        except (exceptions.BaseError, OSError) as error:
            known = map_error(error, f"delete chunk {name} of {self._place}")
            if not isinstance(known, NotFound):
                raise known from error

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        check_prefix(prefix)
        self._require()
        try:
            async for page in obstore.list(self._objects, prefix or None):
                for found in page:
                    yield found["path"], found["size"]
        except (exceptions.BaseError, OSError) as error:
            # Map all errors to Unavailable, since a listing never raises NotFound.
            raise Unavailable(str(map_error(error, f"list chunks of {self._place}"))) from error

    async def close(self) -> None:
        self._closed = True
        await self._joiner.close()

    async def _refuse_beyond(self, name: str, end: int) -> None:
        """Check that a chunk has `end` bytes, since stores report a range past the end as an error.

        Raises DamagedChunk."""
        try:
            size = (await obstore.head_async(self._objects, name))["size"]
        except (exceptions.BaseError, OSError):
            return
        if size < end:
            raise too_short(name, size, end)

    def _require(self) -> None:
        if self._closed:
            raise Unavailable(f"long-term storage {self._place} is closed")


def open_s3(bucket: str, prefix: str, config: S3Config, env: Env) -> ObjectChunks:
    """Return the chunks in an S3 bucket, below `prefix` ("" for none), without a request yet.  Raises Invalid."""
    place = f"s3://{bucket}/{prefix}"
    client: ClientConfig = {**_CLIENT}
    if str(config.get("endpoint", "")).startswith("http://"):
        client["allow_http"] = True
    past_caches: ClientConfig = {**client, "default_headers": {"cache-control": "no-cache"}}
    try:
        objects, uncached = (
            store.S3Store(bucket, prefix=prefix or None, config=config, client_options=options, retry_config=_RETRY)
            for options in (client, past_caches)
        )
    except (exceptions.BaseError, ValueError) as error:
        raise Invalid(f"storage {place}: {error}") from error
    return ObjectChunks(objects, place, env, uncached)


def open_memory(env: Env) -> ObjectChunks:
    """Return a store of chunks in memory, which are lost with the process."""
    return ObjectChunks(store.MemoryStore(), "memory://", env)
