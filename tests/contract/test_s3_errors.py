"""Mistakes of the setup and refusals of a real S3 server: what the node says, and how often it asks."""

import asyncio

import pytest

from sarit.core.errors import Unavailable
from sarit.core.s3_errors import explained, is_missing_object
from sarit.env.real import real_env
from sarit.index.slate import open_on_s3
from sarit.storage.checksums import DamagedChunk
from sarit.storage.objects import MAX_RETRIES
from sarit.storage.open import open_storage, s3_config
from tests.contract.s3_proxy import counting

CREDENTIALS = "are the credentials right (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
BODY = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>text of the server</Message></Error>'


def response(status: str, code: str) -> bytes:
    body = BODY.format(code).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def refusals(bucket: str, environ: dict[str, str], *, index: bool = True) -> list[str]:
    """What each call of storage and index says.  None of them may take a refusal for a missing chunk."""
    said = []
    storage = await open_storage(f"s3://{bucket}/x", real_env(), environ)

    async def listing():
        return [found async for found in storage.list("c0")]

    calls = [
        lambda: storage.write("c0/a", [b"abc"]),
        lambda: storage.read("c0/a", 0, 3),
        lambda: storage.delete("c0/a"),
        listing,
    ]
    if index:
        calls.append(lambda: open_on_s3(bucket, "x", s3_config(environ)).open(0))
    for call in calls:
        with pytest.raises(Unavailable) as refused:
            await call()
        said.append(str(refused.value))
    await storage.close()
    return said


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        ("403 Forbidden", "SignatureDoesNotMatch", CREDENTIALS),
        ("403 Forbidden", "InvalidAccessKeyId", CREDENTIALS),
        ("404 Not Found", "XAdminUserNotFound", CREDENTIALS),
        ("403 Forbidden", "AccessDenied", CREDENTIALS),
        ("403 Forbidden", "RequestTimeTooSkewed", "synchronize them"),
        ("404 Not Found", "NoSuchBucket", "there is no such bucket: create it"),
    ],
)
def test_mistake_of_the_setup_is_named_with_what_to_do_and_not_repeated(s3, status, code, advice):
    with counting(s3) as (proxy, server):
        proxy.answer = response(status, code)
        said = asyncio.run(refusals(server.bucket, server.environ))
        assert all(advice in text and f"({code})" in text for text in said), said
        # A read asks twice: how long the chunk is tells a refusal from a chunk that is too short.  The opening of an
        # index lists and reads its manifest twice at the same time.
        assert proxy.counted.total() <= 14


def test_slow_down_is_repeated_a_few_times_and_then_unavailable(s3):
    with counting(s3) as (proxy, server):
        proxy.answer = response("503 Slow Down", "SlowDown")
        said = asyncio.run(refusals(server.bucket, server.environ, index=False))
        assert all("fewer requests" in text for text in said), said
        assert 4 < proxy.counted.total() <= 5 * (MAX_RETRIES + 1)


def test_bucket_that_is_not_there(s3):
    said = asyncio.run(refusals("no-such-bucket", s3.environ))
    assert all("there is no such bucket" in text for text in said), said


def test_wrong_keys_of_a_server_that_checks_them(s3):
    if s3.kind == "moto":
        pytest.skip("moto takes any key")
    for wrong in ({"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "nobody"}):
        said = asyncio.run(refusals(s3.bucket, {**s3.environ, **wrong}))
        assert all(CREDENTIALS in text for text in said), said


def test_missing_keys_are_named_and_not_only_the_address_that_was_asked_for_them():
    said = explained("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token - timed out\nmore")
    assert said.startswith("no credentials for the object store: set AWS_ACCESS_KEY_ID")
    assert said.endswith("latest/api/token - timed out")


def test_code_of_another_kind_stays_in_the_text():
    assert explained("first line\n<Error><Code>Other</Code>") == "first line (Other)"
    assert explained("first line") == "first line"
    assert is_missing_object("no body")
    assert not is_missing_object("<Code>NoSuchBucket</Code>")


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 3\r\n\r\nabX",
        response("404 Not Found", "NoSuchKey"),
    ],
)
def test_one_bad_reply_is_no_damage_and_the_second_request_passes_caches(bad):
    """A bit that flipped on the way, or a 404 of a moment, was final for whoever read."""
    asked = []

    async def serve(client, reply):
        # Each reply but the last says that the connection goes on; a request without a body ends with its head.
        while head := (await client.readuntil(b"\r\n\r\n")).lower():
            asked.append(b"cache-control: no-cache" in head)
            good = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 3\r\n\r\nabc"
            reply.write(bad if len(asked) == 1 else good)

    def check(data):
        if data != b"abc":
            raise DamagedChunk("c0/a", 0, "does not match")

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        environ = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        storage = await open_storage("s3://bucket/x", real_env(), environ)
        assert await storage.read("c0/a", 0, 3, check) == b"abc"
        await storage.close()
        server.close()

    asyncio.run(main())
    assert asked == [False, True]
