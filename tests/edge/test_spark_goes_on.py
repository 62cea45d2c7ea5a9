"""A query of Spark over a core's mirror goes on at the promoted mirror of that core, from the same checkpoint.

`make edge`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from sarit.core.links import LinkDirection
from sarit.core.names import StreamName
from tests.edge.places import before, node
from tests.limits import HANG_SECONDS
from tests.mirror.nodes import SCOPE, until, until_equal

NAME = StreamName(SCOPE, "sensor")
EVENTS = 500

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java: install a JRE of version 17 or newer"),
]


async def write(client, first, count):
    async with client.writer(str(NAME)) as writer:
        for number in range(first, first + count):
            writer.write(b"%08d" % number, key="sensor")


async def query(controller, directory, events):
    """Run a query in a driver of its own until it has copied so many events more."""
    command = [sys.executable, "-m", "tests.spark.query_child", controller, str(NAME), str(directory), str(events)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    try:
        output, _ = await asyncio.wait_for(child.communicate(), HANG_SECONDS)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert output.endswith(b"done\n"), output


def copied(directory):
    """The events in the files of the batches that were committed."""
    files = {
        json.loads(line)["path"]
        for log in Path(directory, "out", "_spark_metadata").iterdir()
        if log.name.isdecimal()
        for line in log.read_text().splitlines()[1:]
    }
    lines = (line for path in files for line in Path(unquote(urlparse(path).path)).read_text().splitlines())
    return sorted(int(json.loads(line)["event"]) for line in lines)


def test_query_goes_on_at_the_promoted_mirror(tmp_path):
    async def main():
        async with AsyncExitStack() as stack:
            core = await node(stack, tmp_path / "core", "--http-port", "off")
            standby = await node(stack, tmp_path / "standby", "--http-port", "off")
            edge = await node(stack, tmp_path / "edge", "--profile", "edge")
            await edge.client.create_scope(SCOPE)
            await edge.client.create_stream(str(NAME), segments=2)
            await edge.link("edge", LinkDirection.PUSH, (await before(stack, core)).address, registry=False)
            await core.link("standby", LinkDirection.PUSH, (await before(stack, standby)).address, registry=False)
            await write(edge.client, 0, EVENTS)
            await until_equal(edge, core, [NAME])
            await query(core.node.controller, tmp_path / "spark", EVENTS)
            assert copied(tmp_path / "spark") == list(range(EVENTS))
            # The query has not read these when the core dies.
            await write(edge.client, EVENTS, EVENTS)
            await until_equal(edge, core, [NAME])
            await until_equal(core, standby, [NAME])
            await asyncio.to_thread(core.node.kill)

            async def promoted():
                done = await standby.client.links.promote("standby", planned=False)
                return not done.left and not done.problems

            await until(promoted)
            await write(standby.client, 2 * EVENTS, EVENTS)
            await query(standby.node.controller, tmp_path / "spark", 2 * EVENTS)
            assert copied(tmp_path / "spark") == list(range(3 * EVENTS))

    asyncio.run(asyncio.wait_for(main(), 3 * HANG_SECONDS))  # two drivers of Spark, one after the other
