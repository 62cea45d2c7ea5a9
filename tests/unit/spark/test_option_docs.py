"""The pages on Spark name options that exist, and the table of options is the code's."""

from __future__ import annotations

import re

from tools import spark_options

PAGES = spark_options.PAGE.parent


def test_table_of_options_is_that_of_the_code() -> None:
    assert spark_options.PAGE.read_text() == spark_options.page(), "run make generate"


def test_every_option_has_a_meaning() -> None:
    options = [option for table in spark_options.TABLES.values() for option in table]
    assert all(option.meaning for option in options)
    uses = [(option.name.lower(), option.use) for option in options]
    assert len(set(uses)) == len(uses)


def test_migration_page_names_options_that_exist() -> None:
    known = {option.name for table in spark_options.TABLES.values() for option in table}
    text = (PAGES / "kafka.md").read_text()
    reading = text[text.index("## Reading") : text.index("| column of Kafka")]
    rows = [line.split(" | ") for line in reading.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[1])} - {"segment_id"}
    assert len(named) >= 12
    assert named <= known, named - known
