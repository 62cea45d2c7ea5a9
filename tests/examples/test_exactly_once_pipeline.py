"""The pipeline, killed again and again at random moments: its output is as if it had run once."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import sarit
from examples.exactly_once_pipeline.pipeline import Pipeline
from sarit.client.transactions.transaction import Transaction as AioTransaction
from sarit.controller.transactions.transactions import Transactions
from sarit.core.names import StreamName
from tests.examples.fast_node import fast_node
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

PROGRAM = Path(__file__).parents[2] / "examples" / "exactly_once_pipeline" / "pipeline.py"
ORDERS = 30_000
CUSTOMERS = 20


def test_pipeline_killed_at_random_counts_every_order_once(tmp_path) -> None:
    rng = random.Random(3)
    with RunningNode(tmp_path / "node") as node, sarit.connect(node.controller) as client:
        client.create_scope("shop")
        client.create_stream("shop/orders", segments=3)
        client.create_stream("shop/totals", segments=2)
        expected: dict[str, list[int]] = {f"c{n}": [] for n in range(CUSTOMERS)}
        with client.writer("shop/orders") as writer:
            for _ in range(ORDERS):
                customer, amount = f"c{rng.randrange(CUSTOMERS)}", rng.randrange(1, 100)
                expected[customer].append(amount + (expected[customer][-1] if expected[customer] else 0))
                writer.write(f"{customer},{amount}", key=customer)
        client.seal_stream("shop/orders")
        command = [sys.executable, str(PROGRAM), "--controller", node.controller, "--state", str(tmp_path / "state")]
        kills = 0
        while True:
            run = subprocess.Popen([*command, "shop/orders", "shop/totals"], stdout=subprocess.PIPE, text=True)
            try:
                out, _ = run.communicate(timeout=0.4 + rng.random() * 0.6 if kills < 6 else HANG_SECONDS)
            except subprocess.TimeoutExpired:
                run.kill()
                run.communicate()
                kills += 1
                if kills == 3:
                    client.stream("shop/totals").scale(5)
                continue
            assert run.returncode == 0
            assert out.endswith("orders\n")
            break
        assert kills >= 3, "it was not killed often enough to show anything"
        found: dict[str, list[int]] = {customer: [] for customer in expected}
        steps = []
        for event in client.reader("shop/totals", end="tail"):
            row = json.loads(event)
            if "step" in row:
                steps.append(row["step"])
            else:
                found[row["customer"]].append(row["total"])
        assert found == expected
        assert steps == list(range(1, len(steps) + 1))


def test_new_run_waits_for_commit_of_killed_run(tmp_path, monkeypatch) -> None:
    """The controller is slow to execute the commit: a run that read the output at once would start from the
    beginning."""
    schedule_completion = Transactions.schedule_completion

    def finish_late(self: Transactions, name: StreamName) -> None:
        asyncio.get_running_loop().call_later(1.0, schedule_completion, self, name)

    monkeypatch.setattr(Transactions, "schedule_completion", finish_late)
    with fast_node(tmp_path / "node", 1) as address, sarit.connect(address) as client:
        client.create_scope("shop")
        client.create_stream("shop/orders")
        client.create_stream("shop/totals")
        with client.writer("shop/orders") as writer:
            writer.write_many([f"ann,{n}" for n in range(1, 11)], keys=["ann"] * 10)
        client.seal_stream("shop/orders")
        pipeline = Pipeline(client, "shop/orders", "shop/totals", tmp_path / "state")
        monkeypatch.setattr("examples.exactly_once_pipeline.pipeline.ORDERS_PER_TRANSACTION", 4)
        decide = AioTransaction.commit

        async def decide_and_die(self: AioTransaction, **options) -> None:
            await decide(self, wait=False)
            raise RuntimeError("killed")

        with monkeypatch.context() as dying:
            dying.setattr(AioTransaction, "commit", decide_and_die)
            with pytest.raises(RuntimeError, match="killed"):
                pipeline.run()
        assert list(client.reader("shop/totals", end="tail")) == []
        assert Pipeline(client, "shop/orders", "shop/totals", tmp_path / "state").run() == 6
        rows = list(map(json.loads, client.reader("shop/totals", end="tail")))
        assert [row["total"] for row in rows if "total" in row] == [n * (n + 1) // 2 for n in range(1, 11)]
