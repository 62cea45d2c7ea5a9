"""The pipeline, killed again and again at random moments: its output is as if it had run once."""

import json
import random
import subprocess
import sys
from pathlib import Path

import sarit
from tests.nodes import RunningNode

PROGRAM = Path(__file__).parents[2] / "examples" / "exactly_once_pipeline" / "pipeline.py"
ORDERS = 30_000
CUSTOMERS = 20


def test_killed_at_random_moments_it_counts_every_order_once(tmp_path) -> None:
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
                out, _ = run.communicate(timeout=0.4 + rng.random() * 0.6 if kills < 6 else 60)
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
