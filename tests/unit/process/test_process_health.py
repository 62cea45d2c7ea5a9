"""What the parent of several processes knows of their health, and what it sends to the controller."""

from __future__ import annotations

import asyncio
import json

from sarit.admin.reasons import Reason
from sarit.process.limits import CHILD_HEARTBEAT_SECONDS, MAX_HEARTBEAT_BYTES, MISSED_HEARTBEATS
from sarit.process.observation.process_health import ProcessHealth, StoresReport, decode_reasons, encode_reasons

RECOVERS = Reason("recovering", "container 3", "its index is opened")
DRAINS = Reason("draining", "store-0", "its containers move", ready=True)


def test_reasons_come_back_with_those_that_matter_first():
    assert decode_reasons(json.loads(json.dumps(encode_reasons([DRAINS, RECOVERS])))) == [RECOVERS, DRAINS]


def test_reasons_of_many_containers_fit_a_heartbeat_and_some_are_left():
    rows = encode_reasons([DRAINS] * 10 + [Reason("damaged", f"container {n}", "ä" * 2000) for n in range(100)])
    assert len(json.dumps(rows)) <= MAX_HEARTBEAT_BYTES
    assert rows
    assert not any(reason.ready for reason in decode_reasons(rows))


def test_process_is_starting_until_it_says_how_it_is_and_again_when_it_ended():
    health = ProcessHealth("store-0")
    assert health.reasons() == [Reason("starting", "store-0", "it starts")]
    health.said(encode_reasons([RECOVERS, DRAINS]))
    assert [reason.part for reason in health.reasons()] == ["store-0, container 3", "store-0"]
    health.said([])
    assert health.reasons() == []
    health.away("it ended with code 3")
    assert health.reasons() == [Reason("starting", "store-0", "it ended with code 3")]


def test_process_stands_still_after_several_heartbeats_that_did_not_come():
    health = ProcessHealth("store-0")
    health.said([])
    health.silent(MISSED_HEARTBEATS * CHILD_HEARTBEAT_SECONDS - 1)
    assert health.reasons() == []
    health.silent(MISSED_HEARTBEATS * CHILD_HEARTBEAT_SECONDS)
    assert [(reason.code, reason.part, reason.ready) for reason in health.reasons()] == [
        ("stands-still", "store-0", False)
    ]
    health.said([])
    assert health.reasons() == []


def test_report_has_ports_once_all_stores_serve():
    async def main():
        report = StoresReport()
        ports = asyncio.ensure_future(report.ports())
        report.take(StoresReport.encode((), [RECOVERS]))
        await asyncio.sleep(0)
        assert (report.reasons(), ports.done()) == ([RECOVERS], False)
        report.take(StoresReport.encode((1, 2), []))
        report.take(StoresReport.encode((1, 2), [DRAINS]))
        assert (await ports, report.reasons()) == ([1, 2], [DRAINS])

    asyncio.run(main())
