"""A real Prometheus on this machine, with the rules of deploy/, and a load for what it scrapes."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

import sarit
from benchmarks.peers.ports import free_ports
from tests.limits import HANG_SECONDS
from tools import grafana_dashboard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROMETHEUS = shutil.which("prometheus")
MISSING = "prometheus is not installed: apt-get install prometheus"
RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules.yml"
# A minute of the rules becomes so many seconds here: thresholds stay, windows and waits shrink.
MINUTE_SECONDS = 3
MIN_WINDOW_SECONDS = 15


def _shrunk(match: re.Match[str]) -> str:
    seconds = int(match[1]) * {"s": 1, "m": 60}[match[2]] * MINUTE_SECONDS / 60
    return f"[{max(MIN_WINDOW_SECONDS, math.ceil(seconds))}s]"


def fast_rules() -> str:
    """The rules, with time running faster."""
    rules = yaml.safe_load(RULES.read_text())
    rules["groups"][0]["interval"] = "1s"
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = re.sub(r"\[(\d+)([sm])\]", _shrunk, rule["expr"])
        rule["expr"] = re.sub(r"\d+ \* 3600", str(MIN_WINDOW_SECONDS), rule["expr"])  # of an age
        if "for" in rule:
            rule["for"] = "3s"
    return yaml.safe_dump(rules)


class Prometheus:
    """Scrapes these processes once a second, as the job `sarit`."""

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        self._directory = directory
        self._targets = list(targets)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Prometheus:
        assert PROMETHEUS is not None
        self._directory.mkdir(parents=True)
        (self._directory / "rules.yml").write_text(fast_rules())
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "sarit", "static_configs": [{"targets": self._targets}]}],
        }
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        with (self._directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={self._directory}/prometheus.yml",
                 f"--storage.tsdb.path={self._directory}/data", f"--web.listen-address={self.address}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        self.until(lambda: self.query("up"), "Prometheus scrapes")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Series of an instant query; those without a number are left out."""
        text = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{text}", timeout=10) as answer:
                found = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []
        values = [(series["metric"], float(series["value"][1])) for series in found]
        return [(labels, value) for labels, value in values if not math.isnan(value)]

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def until(self, holds: Callable[[], object], what: str, seconds: float = HANG_SECONDS) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
            time.sleep(0.25)

    def until_firing(self, alert: str) -> None:
        """Wait until an alert fires."""
        self.until(lambda: alert in self.firing(), f"{alert} fires")

    def empty_panels(self) -> dict[str, str]:
        """Queries of the dashboard that find nothing: by panel, the last of them."""
        empty = {}
        for panel, queries in grafana_dashboard.queries().items():
            for query in queries:
                expression = query.replace("$job", "sarit").replace("$instance", ".*")
                if not self.query(expression.replace("$__rate_interval", "15s")):
                    empty[panel] = expression
        return empty


class Load:
    """Some of everything, all the time: events, transactions, a reader group, a tail, history, calls."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Load:
        with sarit.connect(self._controller, wait=60) as client:
            client.create_scope("load")
            client.create_stream("load/s", segments=3)
            client.create_stream("load/t", segments=1)
            client.reader_groups.create("load/g", "load/s")
        for work in (self._write, self._transact, self._read, self._read_history):
            self._threads.append(threading.Thread(target=self._repeat, args=(work,), daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(HANG_SECONDS)

    def _repeat(self, work: Callable[[sarit.Client], None]) -> None:
        while not self._ended.is_set():
            with suppress(sarit.SaritError, OSError), sarit.connect(self._controller, retry_timeout=5) as client:
                work(client)

    def _write(self, client: sarit.Client) -> None:
        with client.writer("load/s") as writer:
            number = 0
            while not self._ended.wait(0.02):
                for _ in range(200):
                    number += 1
                    writer.write(b"x" * 500, key=str(number))

    def _transact(self, client: sarit.Client) -> None:
        with client.transactional_writer("load/t") as writer:
            while not self._ended.wait(0.2):
                with writer.begin() as transaction:
                    transaction.write(b"y" * 100, key="1")
                writer.begin().abort()
                client.stream_info("load/t")

    def _read(self, client: sarit.Client) -> None:
        with client.reader_groups.open("load/g").reader("r") as reader:
            for _ in reader:
                if self._ended.is_set():
                    return

    def _read_history(self, client: sarit.Client) -> None:
        while not self._ended.wait(0.5):
            for count, _ in enumerate(client.reader("load/s", start="head", end="tail")):
                if count > 50_000 or self._ended.is_set():
                    break
