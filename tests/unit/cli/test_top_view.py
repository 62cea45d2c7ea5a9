from sarit.cli.top_view import Scrape, lines_of, parse_metrics, size, summary

TEXT = """# HELP sarit_append_bytes_total Bytes
# TYPE sarit_append_bytes_total counter
sarit_append_bytes_total 1000.0
sarit_dirty_bytes 5e+06
sarit_dirty_limit_bytes 1e+07
sarit_connections 3.0
sarit_stream_append_bytes_per_second{stream="a/\\"b\\""} 10.0
sarit_stream_append_bytes_per_second{stream="a/c"} 20.0
sarit_stream_append_bytes_per_second{stream="a/idle"} 0.0
sarit_reader_group_lag_bytes{group="a/g"} 7.0
"""
HEALTH = {"name": "the node", "state": "ready", "ready": True, "reasons": [],
          "containers": [{"state": "serving"}, {"state": "opening"}, {"state": "absent"}]}  # fmt: skip


def scrape(at, total):
    samples = parse_metrics(TEXT)
    samples["sarit_append_bytes_total"] = [({}, total)]
    return Scrape("h:1", at, HEALTH, samples)


def test_rate_is_the_growth_of_a_counter_per_second_and_counts_from_zero_after_a_restart():
    first, second = scrape(10.0, 1000.0), scrape(12.0, 5000.0)
    assert summary(first, None)["append_bytes_per_second"] is None
    assert summary(second, first)["append_bytes_per_second"] == 2000.0
    assert summary(scrape(14.0, 600.0), second)["append_bytes_per_second"] == 300.0


def test_streams_are_shown_busiest_first_and_idle_ones_are_not():
    row = summary(scrape(1.0, 0.0), None)
    assert row["streams"] == {"a/c": 20.0, 'a/"b"': 10.0}
    assert (row["containers_serving"], row["containers"]) == (1, 2)
    lines = lines_of([row, row], 200)
    assert lines[-6:-3] == ["BUSIEST STREAMS", "        40 B/s  a/c", '        20 B/s  a/"b"']
    assert lines[-2:] == ["LAG OF READER GROUPS", "           7 B  a/g"]
    assert "############............ 5.0 MB of 10.0 MB" in lines[1]


def test_reasons_and_processes_that_are_away_are_shown_within_the_width():
    away = summary(Scrape("h:2", 1.0, error="it does not answer: refused"), None)
    ill = summary(Scrape("h:3", 1.0, {**HEALTH, "ready": False, "reasons": [
        {"code": "disk-full", "part": "disk", "text": "5 MiB left"}]}, {}), None)  # fmt: skip
    lines = lines_of([away, ill], 60)
    assert lines[1].endswith("away")
    assert "not ready" in lines[2]
    assert "  h:3  disk-full  disk: 5 MiB left" in lines
    assert "  h:2  away  it does not answer: refused" in lines
    assert max(map(len, lines)) <= 60


def test_sizes_have_units():
    assert [size(value) for value in (None, 0, 999, 1500, 2.5e6, 3e9, 4e12)] == [
        "-", "0 B", "999 B", "1.5 kB", "2.5 MB", "3.0 GB", "4.0 TB"
    ]  # fmt: skip
