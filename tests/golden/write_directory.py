"""Write a data directory with the version of Sarit that is imported, and pack it: for `test_directories.py`.

    git worktree add /tmp/older COMMIT
    PYTHONPATH=/tmp/older/src python tests/golden/write_directory.py tests/golden/directory-FORMAT-COMMIT.tar.xz

The node is stopped once, so that there are chunks and a checkpoint, and then killed, so that there is a log to replay.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import sarit

START = "import sys; sys.argv[0] = 'sarit'; from sarit.cli.main import main; main()"
BLOCK = 4096
LARGE = 700_000
SECONDS = 60


def start(directory: Path, port: int) -> tuple[subprocess.Popen[bytes], sarit.Client]:
    """Start a node of two containers, and connect."""
    options = ["--data-dir", str(directory), "--containers", "2", "--controller-port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", START, "standalone", *options, "--store-port", str(port + 1)])
    end = time.monotonic() + SECONDS
    while True:
        try:
            return process, sarit.connect(f"127.0.0.1:{port}")
        except sarit.Unavailable:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)


def write(client: sarit.Client, first: int, last: int) -> None:
    """Write numbered events with seven keys."""
    with client.writer("s/t") as writer:
        for number in range(first, last):
            writer.write(b"%d" % number, key=str(number % 7))


def fill(client: sarit.Client) -> None:
    """Write something of every kind."""
    client.create_scope("s")
    for name, segments in (("s/t", 2), ("s/large", 1), ("s/truncated", 1)):
        client.create_stream(name, segments=segments)
    write(client, 0, 100)
    client.stream("s/t").scale(3)
    write(client, 100, 200)
    with client.writer("s/large") as writer:
        for number in range(3):
            writer.write(b"%d" % number * LARGE)
    with client.writer("s/truncated") as writer:
        writer.write(b"before")
        writer.flush()
        cut = client.stream_cut_tail("s/truncated")
        writer.write(b"after")
    client.truncate_stream("s/truncated", cut=cut)
    client.tables.create("s/table", primary_key_bytes=2)
    table = client.table("s/table")
    for number in range(20):
        table.put(b"%02d" % number, b"value %d" % number)
    client.reader_groups.create("s/group", "s/t")
    with client.transactional_writer("s/large") as writer, writer.begin() as transaction:
        transaction.write(b"of a transaction")


def pack(directory: Path, target: Path) -> None:
    """Pack the directory without what the node makes again: locks, spare files, the preallocated ends of logs."""
    for path in sorted(directory.rglob("*")):
        if path.suffix in (".spare", ".socket") or path.name == "lock":
            path.unlink()
        elif path.suffix == ".log":
            used = len(path.read_bytes().rstrip(b"\0"))
            with path.open("r+b") as file:
                file.truncate(-(-used // BLOCK) * BLOCK)
    with tarfile.open(target, "w:xz") as archive:
        archive.add(directory, "data")


def main() -> None:
    """Write and pack."""
    target, port = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 29090
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made) / "data"
        node, client = start(directory, port)
        try:
            fill(client)
            client.close()
            node.terminate()
            assert node.wait(SECONDS) == 0
            node, client = start(directory, port)
            write(client, 200, 300)
            client.close()
        finally:
            node.kill()
            node.wait(SECONDS)
        pack(directory, target)


if __name__ == "__main__":
    main()
