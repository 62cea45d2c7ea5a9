"""A condition that lasts is logged at once, and then once a minute with a count."""

import logging

from sarit.core.limits import MAX_REPEATED_LOG_KEYS, REPEATED_LOG_SECONDS
from sarit.core.repeated_log import RepeatedLog

LOGGER = logging.getLogger("sarit.test")


def test_one_line_a_minute_for_each_key(caplog):
    caplog.set_level(logging.INFO)
    now = 0.0
    log = RepeatedLog(LOGGER, lambda: now)
    for second in range(int(2 * REPEATED_LOG_SECONDS) + 1):
        now = float(second)
        log.info("one", "the same")
        if second % 20 == 0:
            log.warning("two", "another")
    assert [record.message for record in caplog.records if "same" in record.message] == [
        "the same", "the same (59 times more in the last 60 s)", "the same (59 times more in the last 60 s)",
    ]  # fmt: skip
    assert [record.levelname for record in caplog.records if "another" in record.message] == ["WARNING"] * 3


def test_a_condition_that_ended_is_logged_at_once_when_it_begins_again(caplog):
    log = RepeatedLog(LOGGER, lambda: 0.0)
    for _ in range(3):
        log.error("disk", "full")
    log.ended("disk")
    log.ended("never began")
    log.error("disk", "full again")
    assert caplog.messages == ["full", "full again"]


def test_what_is_polled_is_not_counted(caplog):
    now = 0.0
    log = RepeatedLog(LOGGER, lambda: now, counted=False)
    for second in range(int(REPEATED_LOG_SECONDS) + 1):
        now = float(second)
        log.warning("away", "the node is away")
    assert caplog.messages == ["the node is away"] * 2


def test_keys_are_bounded():
    log = RepeatedLog(LOGGER, lambda: 0.0)
    for key in range(MAX_REPEATED_LOG_KEYS + 100):
        log.info(key, "text")
    assert len(log._last) == MAX_REPEATED_LOG_KEYS
