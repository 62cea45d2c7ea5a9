"""The official Python client with one writer and one reader for some time: `HOST:PORT USER PASSWORD SECONDS`.

Prints how many events it wrote, and how many it read."""

import asyncio
import os
import sys
import time

address, user, password, seconds = sys.argv[1:]
os.environ |= {
    "pravega_client_auth_method": "Basic",
    "pravega_client_auth_username": user,
    "pravega_client_auth_password": password,
}

import pravega_client  # noqa: E402

manager = pravega_client.StreamManager(f"tcp://{address}", True, False, False)
manager.create_scope("renewed")
manager.create_stream("renewed", "s", 1)
writer = manager.create_writer("renewed", "s")
reader = manager.create_reader_group("group", "renewed", "s").create_reader("reader")


async def main() -> None:
    """Write and read until the time is over."""
    written = read = 0
    end = time.monotonic() + float(seconds)
    while read < written or time.monotonic() < end:
        if time.monotonic() < end:
            await writer.write_event_async(str(written))
            written += 1
        piece = await reader.get_segment_slice_async()
        if piece is not None:
            read += len(list(piece))
            reader.release_segment(piece)
        await asyncio.sleep(0.5)
    print(written, read, flush=True)
    os._exit(0)  # the client's runtime may abort when the interpreter ends


asyncio.run(main())
