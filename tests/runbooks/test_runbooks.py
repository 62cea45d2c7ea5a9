"""The page of runbooks, carried out as pasted on one cluster of real servers that loses something in between.

ZooKeeper, bookies, S3, stores and a controller are real processes; `make runbooks`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.s3 import s3_server
from tests.guides.pages import blocks
from tests.limits import HANG_SECONDS
from tests.runbooks.site import CONTAINERS, Site

pytestmark = [pytest.mark.long, pytest.mark.timeout(20 * HANG_SECONDS)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "runbooks.md"
EVENTS = 2000


def section(title):
    """The blocks below a heading, in order."""
    page = PAGE.read_text()
    begin = page.index(f"\n## {title}\n")
    end = page.find("\n## ", begin + 1)
    return list(blocks(page[begin : end if end > 0 else len(page)]))


@contextmanager
def site_of(directory):
    with s3_server(directory / "s3") as s3:
        site = Site(directory, s3)
        try:
            site.zookeeper.start()
            yield site
        finally:
            site.end()


def carry_out(site, title):
    """Do what a section says; the text of all that it printed."""
    return "".join(site.run(block) for block in section(title))


def write(site, begin):
    """Events with numbers from `begin` on, each acknowledged."""
    lines = "".join(f"{number}\n" for number in range(begin, begin + EVENTS))
    site.sarit("write", "shop/orders", "--create", data=lines)


def check(site, count):
    """Exactly so many events are there, and more can be written."""
    found = sorted(map(int, site.sarit("read", "shop/orders").split()))
    assert found == list(range(count))


def make(site):
    """The cluster of the page, with events, and a backup of it."""
    start, first, *_ = section("Everything is lost but the backup")
    site.run(start)
    site.run(first)
    words = ("--containers", str(CONTAINERS), "--log", f"bookkeeper://{site.zookeeper.hosts}/ledgers")
    site.sarit("cluster", "init", *words, "--storage", f"s3://{site.bucket}/first", "--lease", "4")
    site.start_servers()
    write(site, 0)
    site.sarit("backup", "create", site.environ["BACKUP"], "--cluster", site.url("first"))


def test_cluster_goes_on_after_each_loss_as_the_page_says(tmp_path):
    with site_of(tmp_path) as site:
        make(site)
        carry_out(site, "What is wrong")

        write(site, EVENTS)
        site.lose(site.bookies[0])
        said = carry_out(site, "A bookie is lost")
        assert site.name_of(site.spare) in said
        check(site, 2 * EVENTS)
        write(site, 2 * EVENTS)

        site.lose_prefix("first")
        carry_out(site, "A bucket prefix is lost")
        check(site, EVENTS)  # what came after the backup is gone
        write(site, EVENTS)

        site.empty_zookeeper()
        carry_out(site, "The data of ZooKeeper is lost")
        carry_out(site, "Everything is lost but the backup")
        check(site, EVENTS)
        write(site, EVENTS)
        check(site, 2 * EVENTS)
