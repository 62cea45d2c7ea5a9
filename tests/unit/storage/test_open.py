"""Storage URLs: what they open, and the errors of invalid ones."""

import asyncio

import pytest

from sarit.core.errors import Invalid, NotFound, Unavailable
from sarit.env.real import real_env
from sarit.storage.open import open_storage, s3_config


def opened(url: str, environ=None) -> str:
    async def main():
        storage = await open_storage(url, real_env(), environ)
        await storage.close()
        return repr(storage)

    return asyncio.run(main())


def test_open_storage_by_scheme(tmp_path):
    assert opened(f"file://{tmp_path}/a%20b/").startswith(f"<DirectoryChunks {tmp_path}/a b ")
    assert (tmp_path / "a b").is_dir()
    assert opened(f"file://localhost{tmp_path}/b").startswith(f"<DirectoryChunks {tmp_path}/b ")
    assert opened("memory://").startswith("<ObjectChunks memory://")
    assert opened("s3://bucket/deep/prefix", {"AWS_REGION": "eu-west-1"}).startswith(
        "<ObjectChunks s3://bucket/deep/prefix"
    )
    assert opened("s3://bucket", {}).startswith("<ObjectChunks s3://bucket/")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "use file:///absolute/path, s3://bucket/prefix or hdfs://namenode:port/folder"),
        ("/var/lib/sarit", "use file:///"),
        ("ftp://host/path", "is not supported"),
        ("file://relative/path", "write file:///relative/path"),
        ("file:relative", "needs an absolute path"),
        ("file:///", "needs an absolute path below the root"),
        ("file:///a%00b", "needs an absolute path"),
        ("file:///a?sync=no", "no query or fragment"),
        ("s3:///prefix", "names no bucket"),
        ("s3://Bucket/prefix", "names no bucket"),
        ("s3://bucket/a//b", "cannot be a prefix"),
        ("s3://bucket/../b", "cannot be a prefix"),
        ("memory://host", "is not supported"),
        ("s3://[bucket", "use file:///"),
    ],
)
def test_invalid_url_error_suggests_valid_url(url, says):
    with pytest.raises(Invalid) as caught:
        opened(url, {})
    assert says in str(caught.value)
    assert url in str(caught.value)


def test_error_does_not_repeat_secret_in_url():
    with pytest.raises(Invalid, match="AWS_ACCESS_KEY_ID") as caught:
        opened("s3://key:secret@bucket/prefix", {})
    assert "secret@" not in str(caught.value)


def test_s3_config_reads_environment():
    assert s3_config({}) == {}
    assert s3_config(
        {
            "AWS_ENDPOINT_URL": "http://one", "AWS_DEFAULT_REGION": "r", "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t", "HOME": "/",
        }
    ) == {
        "endpoint": "http://one", "region": "r", "access_key_id": "k", "secret_access_key": "s", "session_token": "t",
    }  # fmt: skip
    assert s3_config({"AWS_ENDPOINT_URL_S3": "http://two", "AWS_ENDPOINT_URL": "http://one", "AWS_REGION": "q"}) == {
        "endpoint": "http://two", "region": "q",
    }  # fmt: skip


def test_unreachable_server_is_unavailable():
    environ = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}

    async def main():
        storage = await open_storage("s3://bucket/prefix", real_env(), environ)
        for call in (storage.write("a", [b"1"]), storage.read("a", 0, 1), storage.delete("a")):
            with pytest.raises(Unavailable):
                await call
        with pytest.raises(Unavailable):
            _ = [entry async for entry in storage.list("")]
        await storage.close()

    asyncio.run(main())


def test_memory_starts_empty():
    async def main():
        storage = await open_storage("memory://", real_env())
        with pytest.raises(NotFound):
            await storage.read("a", 0, 1)
        await storage.close()

    asyncio.run(main())
