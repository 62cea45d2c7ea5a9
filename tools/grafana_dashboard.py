"""Write the Grafana dashboard, deploy/grafana/sarit.json.

python -m tools.grafana_dashboard            write it
python -m tools.grafana_dashboard --check    exit 1 when it is stale

In the expressions `$$` stands for the labels that choose the processes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "sarit.json"
_CHOSEN: Final = 'job="$job", instance=~"$instance"'
_COLUMNS: Final = 3
_WIDTH, _HEIGHT = 24 // _COLUMNS, 7


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: (expression, legend).  `kind`: of Grafana."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def _rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{{$$}}[$__rate_interval]))"


def _quantiles(title: str, metric: str) -> Panel:
    queries = [
        (
            f"histogram_quantile({quantile}, sum by (instance, le) (rate({metric}_bucket{{$$}}[$__rate_interval])))",
            f"{{{{instance}}}} p{round(100 * quantile)}",
        )
        for quantile in (0.5, 0.99)
    ]
    return Panel(title, "s", tuple(queries))


def _mean(title: str, unit: str, metric: str) -> Panel:
    return Panel(title, unit, ((f"{_rate(f'{metric}_sum')} / {_rate(f'{metric}_count')}", "{{instance}}"),))


def _one(title: str, unit: str, query: str, legend: str = "{{instance}}") -> Panel:
    return Panel(title, unit, ((query, legend),))


ROWS: Final = {
    "Overview": (
        Panel("Processes up", "short", (('sum(up{job="$job"})', "up"),), "stat"),
        Panel("Containers that serve", "short", (("sum(sarit_container_serving{$$})", "serving"),), "stat"),
        Panel(
            "Alerts that fire", "short",
            (('count(ALERTS{alertname=~"Sarit.*", alertstate="firing"}) or vector(0)', ""),), "stat",
        ),
        _one("Events written per second", "short", _rate("sarit_append_events_total")),
        _one("Bytes written per second", "Bps", _rate("sarit_append_bytes_total")),
        _one("Bytes read per second", "Bps", _rate("sarit_read_bytes_total")),
    ),
    "Writes": (
        _quantiles("Latency of appends", "sarit_append_latency_seconds"),
        _quantiles("Sync of the log (local logs)", "sarit_log_sync_seconds"),
        _quantiles("Group commit", "sarit_group_commit_latency_seconds"),
        _one("Appends per second", "short", _rate("sarit_appends_total")),
        _mean("Operations in a frame", "short", "sarit_group_commit_operations"),
        _mean("Bytes of a frame", "bytes", "sarit_group_commit_bytes"),
        _one("Busiest streams, bytes per second", "Bps",
             "topk(10, sum by (stream) (sarit_stream_append_bytes_per_second{$$}))", "{{stream}}"),
        _one("Busiest streams, events per second", "short",
             "topk(10, sum by (stream) (sarit_stream_append_events_per_second{$$}))", "{{stream}}"),
        _one("Scopes, bytes per second", "Bps",
             "topk(10, sum by (scope) (sarit_scope_append_bytes_per_second{$$}))", "{{scope}}"),
    ),
    "Reads": (
        _one("Reads per second", "short", _rate("sarit_reads_total")),
        _quantiles("Latency of reads from chunks", "sarit_chunk_read_latency_seconds"),
        Panel("Found in memory", "percentunit", (
            (f"{_rate('sarit_chunk_cache_hits_total')} / ({_rate('sarit_chunk_cache_hits_total')} + "
             f"{_rate('sarit_chunk_cache_misses_total')})", "{{instance}} blocks of chunks"),
            (f"{_rate('sarit_metadata_cache_hits_total')} / ({_rate('sarit_metadata_cache_hits_total')} + "
             f"{_rate('sarit_metadata_cache_misses_total')})", "{{instance}} metadata"),
        )),
    ),
    "Tier 2": (
        _one("Requests to storage", "short", _rate("sarit_storage_request_seconds_count", "kind"), "{{kind}}"),
        _one("Bytes to and from storage", "Bps", _rate("sarit_storage_bytes_total", "kind"), "{{kind}}"),
        _one("Errors of storage", "short", _rate("sarit_storage_errors_total", "kind"), "{{kind}}"),
        _quantiles("Checkpoints", "sarit_checkpoint_seconds"),
        _one("Segments to compact", "short", "sum by (instance) (sarit_compaction_backlog{$$})"),
        _one("Bytes compacted per second", "Bps", _rate("sarit_compacted_bytes_total")),
        _one("Objects written per second", "short", _rate("sarit_chunk_writes_total")),
        _one("Bytes scrubbed per second", "Bps", _rate("sarit_scrubbed_bytes_total")),
        _one("Damage found", "short", "sarit_damage_found_total{$$}"),
    ),
    "Memory and bounds": (
        Panel("Dirty bytes", "bytes", (
            ("sarit_dirty_bytes{$$}", "{{instance}}"), ("sarit_dirty_limit_bytes{$$}", "{{instance}} bound"),
        )),
        _one("Time in which appends wait", "percentunit", _rate("sarit_throttled_seconds_total")),
        _one("Appends that wait", "short", "sarit_throttled_appends{$$}"),
        Panel("Flushed bytes still in memory", "bytes", (
            ("sarit_cached_bytes{$$}", "{{instance}}"), ("sarit_cached_limit_bytes{$$}", "{{instance}} bound"),
        )),
        _one("Log that a recovery would read", "bytes", "sum by (instance) (sarit_log_backlog_bytes{$$})"),
        Panel("Free space", "bytes", (
            ("sarit_disk_free_bytes{$$}", "{{instance}} {{disk}}"),
            ("sarit_disk_reserve_bytes{$$}", "{{instance}} {{disk}} reserve"),
        )),
    ),
    "Controller": (
        _one("Calls per second", "short", f"topk(12, {_rate('sarit_controller_calls_total', 'method')})", "{{method}}"),
        _one("Calls that failed", "short",
             'sum by (method, status) (rate(sarit_controller_calls_total{$$, status!="OK"}[$__rate_interval]))',
             "{{method}} {{status}}"),
        _one("Latency of calls, p95", "s",
             "topk(12, histogram_quantile(0.95, sum by (method, le) "
             "(rate(sarit_controller_call_seconds_bucket{$$}[$__rate_interval]))))", "{{method}}"),
        _one("Scalings per minute", "short", f"60 * {_rate('sarit_scales_total', 'cause')}", "{{cause}}"),
        _one("Unfinished changes", "short", "max(sarit_pending_work{$$})", "changes"),
        _one("Open connections", "short", "sarit_controller_connections{$$}"),
    ),
    "Schema registry": (
        _one("Requests per second", "short", f"topk(12, {_rate('sarit_registry_requests_total', 'call')})", "{{call}}"),
        _one("Requests that failed", "short",
             'sum by (call, status) (rate(sarit_registry_requests_total{$$, status!~"2.."}[$__rate_interval]))',
             "{{call}} {{status}}"),
        _one("Latency of requests, p95", "s",
             "topk(12, histogram_quantile(0.95, sum by (call, le) "
             "(rate(sarit_registry_request_seconds_bucket{$$}[$__rate_interval]))))", "{{call}}"),
        _one("Registrations per minute", "short", f"60 * {_rate('sarit_registry_registrations_total', 'outcome')}",
             "{{outcome}}"),
        Panel("Schemas and groups", "short", (
            ("max(sarit_registry_schemas{$$})", "schemas"), ("max(sarit_registry_groups{$$})", "groups"),
        )),
    ),
    "Iceberg tables": (
        _one("Behind the streams", "bytes", "topk(12, max by (stream) (sarit_iceberg_lag_bytes{$$}))", "{{stream}}"),
        _one("Age of what is not committed", "s", "topk(12, max by (stream) (sarit_iceberg_lag_seconds{$$}))",
             "{{stream}}"),
        _one("Rows per second", "short", f"topk(12, {_rate('sarit_iceberg_rows_total', 'stream')})", "{{stream}}"),
        _one("Dead letters per minute", "short", f"60 * {_rate('sarit_iceberg_dead_letters_total', 'stream')}",
             "{{stream}}"),
        _one("Stopped", "short", "max by (stream, problem) (sarit_iceberg_stopped{$$})", "{{stream}} {{problem}}"),
    ),
    "Full-text search": (
        _one("Not indexed yet", "bytes", "topk(12, max by (stream) (sarit_search_lag_bytes{$$}))", "{{stream}}"),
        _one("Age of what is not indexed", "s", "topk(12, max by (stream) (sarit_search_lag_seconds{$$}))",
             "{{stream}}"),
        _one("Indexed per second", "short", f"topk(12, {_rate('sarit_search_events_total', 'stream')})", "{{stream}}"),
        _one("Size of indexes", "bytes", "topk(12, max by (stream) (sarit_search_index_bytes{$$}))", "{{stream}}"),
        _one("Nothing is indexed", "short", "max by (stream) (sarit_search_stopped{$$})", "{{stream}}"),
        _one("Searches per second", "short", _rate("sarit_searches_total", "outcome"), "{{outcome}}"),
    ),
    "Continuous queries": (
        _one("Not asked about yet", "bytes", "topk(12, max by (stream) (sarit_continuous_lag_bytes{$$}))",
             "{{stream}}"),
        _one("Matches per second", "short", f"topk(12, {_rate('sarit_continuous_matches_total', 'stream')})",
             "{{stream}}"),
        _one("Suspended", "short", "max by (stream) (sarit_continuous_suspended{$$})", "{{stream}}"),
    ),
    "Links to other installations": (
        _one("Up", "short", "max by (link) (sarit_link_up{$$})", "{{link}}"),
        _one("Behind the sources", "bytes", "topk(12, max by (link) (sarit_link_lag_bytes{$$}))", "{{link}}"),
        _one("Age of what is not copied", "s", "topk(12, max by (link) (sarit_link_lag_seconds{$$}))", "{{link}}"),
        _one("Copied", "Bps", f"topk(12, {_rate('sarit_link_copied_bytes_total', 'link')})", "{{link}}"),
        _one("Lost", "bytes", "max by (link) (sarit_link_lost_bytes_total{$$})", "{{link}}"),
        _one("Streams that are not copied", "short", "max by (link) (sarit_link_failing_streams{$$})", "{{link}}"),
    ),
    "Transactions": (
        Panel("Transactions per second", "short", tuple(
            (f"sum(rate(sarit_transactions_{event}_total{{$$}}[$__rate_interval]))", event)
            for event in ("begun", "committed", "aborted", "expired")
        )),
        _one("Not ended", "short", "max(sarit_transactions_live{$$})", "transactions"),
    ),
    "Reader groups": (
        _one("Bytes not read", "bytes", "topk(20, max by (group) (sarit_reader_group_lag_bytes{$$}))", "{{group}}"),
        _one("Readers", "short", "topk(20, max by (group) (sarit_reader_group_readers{$$}))", "{{group}}"),
        _one("Groups without a series", "short", "sum(sarit_reader_groups_not_measured{$$})", "groups"),
    ),
    "Containers and cluster": (
        _one("Containers by state", "short", "sum by (state) (sarit_containers{$$})", "{{state}}"),
        _quantiles("Opening a container", "sarit_recovery_seconds"),
        _one("Openings that failed", "short", _rate("sarit_recovery_failures_total")),
        _one("Lease left", "s", "sarit_cluster_lease_left_seconds{$$}"),
        _one("Age of the container map", "s", "sarit_cluster_map_age_seconds{$$}"),
        _one("Containers that move", "short", "max(sarit_cluster_moving_containers{$$})", "containers"),
        _one("Usable stores", "short", "max(sarit_cluster_stores{$$})", "stores"),
        _quantiles("Entries on BookKeeper", "sarit_bookkeeper_entry_latency_seconds"),
        Panel("Bookies", "short", (
            ("min(sarit_bookkeeper_writable_bookies{$$})", "writable"),
            ("sum(increase(sarit_bookkeeper_bookies_replaced_total{$$}[$__rate_interval]))", "replaced"),
        )),
    ),
    "Process": (
        _one("Processors", "percentunit", "rate(process_cpu_seconds_total{$$}[$__rate_interval])"),
        _one("Memory", "bytes", "process_resident_memory_bytes{$$}"),
        _one("Open files", "short", "process_open_fds{$$}"),
        _quantiles("Delay of the event loop", "sarit_loop_delay_seconds"),
        _one("Longest delay of the event loop", "s", "sarit_loop_longest_delay_seconds{$$}"),
        _quantiles("Pauses for garbage collection", "sarit_gc_pause_seconds"),
        _one("Connections", "short", "sarit_connections{$$}"),
        Panel("Network", "Bps", (
            (_rate("sarit_received_bytes_total"), "{{instance}} in"),
            (_rate("sarit_sent_bytes_total"), "{{instance}} out"),
        )),
        _one("Version", "short", "sarit_build_info{$$}", "{{instance}} {{role}} {{version}}"),
    ),
}  # fmt: skip


def queries() -> dict[str, list[str]]:
    """The expressions of each panel, by "row / title", as they are in the file."""
    return {
        f"{row} / {panel.title}": [_expression(query) for query, _ in panel.queries]
        for row, panels in ROWS.items()
        for panel in panels
    }


def _expression(query: str) -> str:
    return query.replace("$$", _CHOSEN)


def dashboard() -> dict[str, Any]:
    """The whole of it, as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, its_panels in ROWS.items():
        panels.append(_row(len(panels) + 1, row, top))
        top += 1
        for number, panel in enumerate(its_panels):
            at = {"x": number % _COLUMNS * _WIDTH, "y": top + number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, at))
        top += -(-len(its_panels) // _COLUMNS) * _HEIGHT
    return {
        "title": "Sarit",
        "uid": "sarit",
        "tags": ["sarit"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "$datasource"}
    several = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}},
        {"name": "job", "label": "Job", "type": "query", "datasource": source, "refresh": 1,
         "query": "label_values(sarit_build_info, job)", "current": {"text": "sarit", "value": "sarit"}},
        {"name": "instance", "label": "Process", "type": "query", "datasource": source, "refresh": 2,
         "query": 'label_values(sarit_build_info{job="$job"}, instance)', **several},
    ]  # fmt: skip


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    at = {"x": 0, "y": top, "w": 24, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": at, "collapsed": False, "panels": []}


def _panel(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "$datasource"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": _expression(query), "legendFormat": legend, "datasource": source}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def main() -> None:
    """Write the file, or check it."""
    wanted = text()
    if "--check" in sys.argv[1:]:
        if not FILE.exists() or FILE.read_text() != wanted:
            sys.exit("deploy/grafana/sarit.json is stale: run make generate")
        return
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(wanted)


if __name__ == "__main__":
    main()
