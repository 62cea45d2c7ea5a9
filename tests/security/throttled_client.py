"""The official Python client writes, and reads what it wrote: `HOST:PORT USER PASSWORD MEBIBYTES`.

It takes user and password from its environment, when it is imported: hence a program of its own."""

import asyncio
import os
import sys

address, user, password, mebibytes = sys.argv[1:]
os.environ |= {
    "pravega_client_auth_method": "Basic",
    "pravega_client_auth_username": user,
    "pravega_client_auth_password": password,
}

import pravega_client  # noqa: E402

manager = pravega_client.StreamManager(f"tcp://{address}", True, False, False)
writer = manager.create_writer("limited", "s")
total = int(mebibytes) * 64
for _ in range(total):
    writer.write_event("x" * 16_384)
writer.flush()
group = manager.create_reader_group("group", "limited", "s")


async def read() -> int:
    """All events there are."""
    reader = group.create_reader("reader")
    count = 0
    while count < total:
        piece = await reader.get_segment_slice_async()
        count += len(list(piece))
        reader.release_segment(piece)
    reader.reader_offline()
    return count


print(asyncio.run(read()), flush=True)
os._exit(0)  # the client's runtime may abort when the interpreter ends
