"""The official Python client with a user, and with TLS where a CA is given: `HOST:PORT USER PASSWORD [CA]`.

It takes both from its environment, when it is imported: hence a program of its own."""

import asyncio
import os
import sys

address, user, password, *ca = sys.argv[1:]
os.environ |= {
    "pravega_client_auth_method": "Basic",
    "pravega_client_auth_username": user,
    "pravega_client_auth_password": password,
}
if ca:
    os.environ |= {"pravega_client_tls_cert_path": ca[0]}

import pravega_client  # noqa: E402

manager = pravega_client.StreamManager(f"{'tls' if ca else 'tcp'}://{address}", True, bool(ca), False)
manager.create_scope("official")
manager.create_stream("official", "s", 2)
writer = manager.create_writer("official", "s")
for number in range(100):
    writer.write_event(f"event {number}")
writer.flush()
transactions = manager.create_transaction_writer("official", "s", 7)  # its pings end with the object
transaction = transactions.begin_txn()
transaction.write_event("in a transaction")
transaction.commit()
group = manager.create_reader_group("group", "official", "s")


async def read() -> int:
    """All events there are."""
    reader = group.create_reader("reader")
    count = 0
    while count < 101:
        piece = await reader.get_segment_slice_async()
        count += len(list(piece))
        reader.release_segment(piece)
    reader.reader_offline()
    return count


print(asyncio.run(read()), flush=True)
os._exit(0)  # the client's runtime may abort when the interpreter ends
