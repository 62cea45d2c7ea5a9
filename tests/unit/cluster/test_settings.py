"""What a cluster is described by: its address, its settings, its marks; and the file of options."""

import asyncio
from dataclasses import replace

import pytest
from click.testing import CliRunner

from sarit.cluster.creation import check_log, check_storage, init_cluster, read_meta, read_meta_and_version
from sarit.cluster.settings import META, ClusterMeta, decode_meta, parse_cluster
from sarit.coordination.memory import MemoryCoordination
from sarit.core.errors import Exists, Invalid, Unavailable
from sarit.env.real import real_env
from sarit.storage.open import open_storage


def test_cluster_address_names_servers_and_cluster():
    found = parse_cluster("zookeeper://zk1:2181,zk-2.example:2182,[::1]:2183/first")
    assert (found.hosts, found.name, found.root) == ("zk1:2181,zk-2.example:2182,[::1]:2183", "first", "/sarit/first")
    assert parse_cluster(str(found)) == found


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:2181/first", "names no cluster"),
        ("zk://127.0.0.1:2181/first", "names no cluster"),
        ("zookeeper://127.0.0.1/first", "'127.0.0.1' is no HOST:PORT"),
        ("zookeeper://127.0.0.1:70000/first", "is no HOST:PORT"),
        ("zookeeper://a:1,,b:2/first", "'' is no HOST:PORT"),
        ("zookeeper://127.0.0.1:2181", "the name of the cluster comes last"),
        ("zookeeper://127.0.0.1:2181/a/b", "the name of the cluster comes last"),
    ],
)
def test_cluster_address_that_is_none_is_refused_with_an_example(url, reason):
    with pytest.raises(Invalid, match=reason) as raised:
        parse_cluster(url)
    assert "zookeeper://HOST:PORT,HOST:PORT/NAME" in str(raised.value)


def meta(tmp_path, **changes) -> ClusterMeta:
    asked = ClusterMeta(
        "", "", 4, f"file://{tmp_path}/log", f"file://{tmp_path}/index", f"file://{tmp_path}/chunks", "here"
    )
    return replace(asked, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"containers": 0}, "--containers"),
        ({"lease_seconds": 3.9}, "--lease takes 4 to 30 seconds, not 3.9"),
        ({"log": "s3://bucket/log"}, "--log s3://bucket/log: write file:///absolute/path"),
        ({"index": "file://relative"}, "--index file://relative"),
        ({"index": "http://x"}, "use s3://bucket/prefix"),
        ({"storage": "memory://"}, "--storage memory://"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_the_option(tmp_path, changes, reason):
    with pytest.raises(Invalid, match=reason):
        meta(tmp_path, **changes).checked()


def test_description_survives_its_bytes_and_newer_ones_are_refused(tmp_path):
    described = meta(tmp_path, cluster="c" * 32, secret="00", complete=True)
    assert decode_meta(described.encode()) == described
    with pytest.raises(Invalid, match="is of format 2"):
        decode_meta(described.encode().replace(b'"version": 1', b'"version": 2'))
    for damaged in (b"", b"[]", b"{}", b'{"version": 1, "what": 3}'):
        with pytest.raises(Invalid, match="cannot be read"):
            decode_meta(damaged)


def test_options_that_differ_from_the_cluster_are_refused_by_name(tmp_path):
    described = meta(tmp_path)
    described.compare({"containers": 4, "log": described.log, "storage": None})
    with pytest.raises(Invalid, match="made with --containers 4, not 5: give that, or leave it out"):
        described.compare({"containers": 5})


def test_cluster_is_made_once_and_each_process_finds_its_marks(tmp_path):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("operator", env.clock)
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        with pytest.raises(Invalid, match="there is no cluster x: make it with `sarit cluster init"):
            await read_meta(registers, "x")
        made = await init_cluster(registers, env, meta(tmp_path), storage)
        assert await read_meta(registers, "x") == made
        assert len(made.cluster) == 32
        with pytest.raises(Exists):
            await init_cluster(registers, env, meta(tmp_path), storage)
        check_log(env.files, made, "here")
        await check_storage(env, storage, made)
        with pytest.raises(Invalid, match=r"a directory of the machine here \(file:.*/log\), and this is there"):
            check_log(env.files, made, "there")
        other = replace(made, cluster="d" * 32)
        with pytest.raises(Invalid, match="is the log of the cluster"):
            check_log(env.files, other, "here")
        with pytest.raises(Invalid, match="long-term storage belongs to"):
            await check_storage(env, storage, other)
        (tmp_path / "log" / "cluster").unlink()
        with pytest.raises(Invalid, match="is its disk mounted"):
            check_log(env.files, made, "here")
        await storage.close()

    asyncio.run(main())


def test_cluster_that_is_being_restored_is_for_that_restore_alone(tmp_path):
    async def main():
        registers = MemoryCoordination().client("operator", real_env().clock)
        made = meta(tmp_path, cluster="c" * 32, secret="00", complete=True, restoring="backup 3 of n")
        await registers.create(META, made.encode())
        with pytest.raises(Invalid, match="is being restored from backup 3 of n: wait for its end, or run"):
            await read_meta(registers, "x")
        with pytest.raises(Invalid, match="is being restored from backup 3 of n"):
            await read_meta_and_version(registers, "x", restoring="backup 4 of n")
        found, version = await read_meta_and_version(registers, "x", restoring="backup 3 of n")
        assert found == made
        await registers.set(META, replace(made, restoring="").encode(), version)
        assert (await read_meta_and_version(registers, "x", restoring="backup 3 of n"))[0] == replace(
            made, restoring=""
        )

    asyncio.run(main())


@pytest.mark.parametrize("length", [0, 5])
def test_mark_of_the_log_that_was_not_written_whole_is_written_again(tmp_path, length):
    """The power failed while the cluster was made: the file is there, and its bytes are not."""

    async def main():
        env = real_env()
        registers = MemoryCoordination().client("operator", env.clock)
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        replace_value = registers.set

        async def away(*_):
            raise Unavailable("away")

        registers.set = away
        with pytest.raises(Unavailable):
            await init_cluster(registers, env, meta(tmp_path), storage)
        registers.set = replace_value
        mark = tmp_path / "log" / "cluster"
        mark.write_bytes(mark.read_bytes()[:length])
        made = await init_cluster(registers, env, meta(tmp_path), storage)
        assert mark.read_bytes() == made.cluster.encode()
        await storage.close()

    asyncio.run(main())


def test_making_a_cluster_that_was_interrupted_goes_on_with_its_id(tmp_path):
    async def main():
        env = real_env()
        registers = MemoryCoordination().client("operator", env.clock)
        storage = await open_storage(f"file://{tmp_path}/chunks", env)
        replace_value = registers.set

        async def killed(*_):
            raise asyncio.CancelledError

        registers.set = killed
        with pytest.raises(asyncio.CancelledError):
            await init_cluster(registers, env, meta(tmp_path), storage)
        registers.set = replace_value
        with pytest.raises(Invalid, match="is not complete: run `sarit cluster init` again"):
            await read_meta(registers, "x")
        begun = decode_meta((await registers.get(META)).value)
        made = await init_cluster(registers, env, meta(tmp_path, containers=7), storage)
        assert (made.cluster, made.secret) == (begun.cluster, begun.secret)
        assert (await read_meta(registers, "x")).containers == 7
        await storage.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[store]\nmemry = "1G"', "sarit.toml:2: store has no option 'memry': did you mean 'memory'?"),
        ("[stores]\nport = 1", "there is no table [stores]"),
        ("prot = 1", "sarit.toml:1: there is no option 'prot': did you mean 'port'?"),
        ("cluster = ", "sarit.toml:1: this is not TOML"),
        ('cluster = "nowhere"', "'nowhere' names no cluster"),  # the setting reached the command
        ('cluster = "nowhere"\nlease = 5\n[controller]\nexpect = 3', "'nowhere' names no cluster"),
    ],
)
def test_file_of_options_is_read_and_a_misspelt_one_is_refused(tmp_path, text, reason):
    from sarit.cli.store import store

    path = tmp_path / "sarit.toml"
    path.write_text(text)
    done = CliRunner().invoke(store, ["--config", str(path)])
    assert done.exit_code != 0
    assert reason in " ".join((done.output + str(done.exception)).split())


def test_command_line_wins_over_the_file_of_options(tmp_path):
    from sarit.cli.store import store

    path = tmp_path / "sarit.toml"
    path.write_text('cluster = "zookeeper://zk:1/file"')
    done = CliRunner().invoke(store, ["--config", str(path), "--cluster", "line"])
    assert "'line' names no cluster" in done.output
