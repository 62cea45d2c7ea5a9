"""How the workers of `make test` share the tests: a worker takes a whole file, or all that need one thing.

The files of Spark's folder go to one worker: each worker that has one of them starts a Spark of its own, and each Spark
compiles its code again.  What takes long begins first, so that no worker is left alone with it at the end."""

from __future__ import annotations

import functools
import gc
import logging
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.costs import Costs, WorkerCosts
from tests.left_threads import LeftThreads
from tests.limits import USUAL_EXAMPLES, examples

# Without limits of time: the machine may be busy.
settings.register_profile(
    "share", max_examples=examples(USUAL_EXAMPLES), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("share")
# Tests run many nodes beside each other; those that need the HTTP port ask for one.
os.environ["SARIT_HTTP_PORT"] = "off"


@pytest.fixture(autouse=True)
def _log_level_stays():
    """Nodes in the process of a test set the level of the log; other tests count lines."""
    root = logging.getLogger()
    level = root.level
    yield
    if root.level != level:  # to set it empties what all loggers know, though it is the same
        root.setLevel(level)


ROOT = Path(__file__).resolve().parent.parent
SPARK = "tests/spark/"
# Begin first, from the costs that a run prints at its end: the folder of Spark, then the longest.  Files that wait most
# of the time, for nodes and Java, stand between those that compute, so that they run beside each other.
LONG = (
    SPARK,
    "tests/guides/",
    "tests/test_simulation_mutants.py",
    "tests/security/test_official_client.py",
    "tests/unit/schemas/test_hostile_definitions.py",
    "tests/interop/test_official_client.py",
    "tests/test_simulation.py",
    "tests/test_continuous_queries.py",
    "tests/unit/schemas/test_protobuf_definition.py",
    "tests/cluster/test_registry.py",
    "tests/unit/search/test_continuous.py",
    "tests/unit/client/test_node_away.py",
    "tests/test_docs_site.py",
    "tests/faults/test_expired_transaction.py",
    "tests/test_wheel.py",
    "tests/security/test_attacks.py",
    "tests/faults/test_lake_kills.py",
    "tests/mirror/test_two_nodes.py",
    "tests/interop/test_scaling.py",
    "tests/test_search_index.py",
    "tests/test_tidy.py",
    "tests/examples/test_readme.py",
    "tests/test_simulation_repeats.py",
    "tests/mirror/test_tables_over_a_link.py",
    "tests/unit/sql/test_child.py",
    "tests/test_lake_commands.py",
    "tests/test_testing_plugin.py",
    "tests/mirror/test_groups_over_a_link.py",
    "tests/unit/mirror/test_two_controllers.py",
    "tests/unit/rpc/test_many_calls.py",
    "tests/chaos/",
    "tests/test_cli_links.py",
    "tests/test_standard_files.py",
    "tests/unit/process/test_missing_pieces.py",
    "tests/unit/search/test_indexer.py",
    "tests/faults/test_full_disk.py",
    "tests/test_cli_transfer.py",
    "tests/faults/test_refusals.py",
    "tests/unit/cli/test_configured.py",
    "tests/faults/test_failed_container.py",
    "tests/test_crash_states.py",
    "tests/unit/client/core/test_broken_connections.py",
    "tests/unit/process/test_query_runner.py",
    "tests/test_health.py",
    "tests/unit/models/",
    "tests/test_cli_pipes.py",
    "tests/unit/controller/test_crashes.py",
    "tests/test_cli.py",
    "tests/unit/tools/test_trace.py",
    "tests/faults/",
    "tests/unit/log/test_crash_states.py",
    "tests/interop/",
    "tests/examples/",
    "tests/unit/process/test_autoscale.py",
)


# Where a test file lies -> what its tests cost; the longest beginning counts.  What is not here starts a node.
# Heavy files start nothing, but each needs about a second of processor time or more: `make check` leaves them to CI.
COSTS = {
    "tests/unit/": "pure",
    "tests/test_docs.py": "pure",
    "tests/test_sentences.py": "pure",
    "tests/test_bounds.py": "pure",
    "tests/test_tidy.py": "pure",
    "tests/contract/": "contract",
    "tests/unit/admin/rest/test_rest.py": "heavy",
    "tests/unit/checkers/test_log.py": "heavy",
    "tests/unit/cli/test_configured.py": "heavy",
    "tests/unit/cli/test_hostile_parquet.py": "heavy",
    "tests/unit/client/groups/test_random_readers.py": "heavy",
    "tests/unit/client/groups/test_reader_group.py": "heavy",
    "tests/unit/client/groups/test_stream_cuts.py": "heavy",
    "tests/unit/client/reader/test_batch.py": "heavy",
    "tests/unit/client/sync/test_membership.py": "heavy",
    "tests/unit/client/sync/test_revisioned.py": "heavy",
    "tests/unit/client/sync/test_synchronizer.py": "heavy",
    "tests/unit/client/tables/test_model.py": "heavy",
    "tests/unit/client/tables/test_table.py": "heavy",
    "tests/unit/client/transactions/test_transactions_random.py": "heavy",
    "tests/unit/controller/test_recreated.py": "heavy",
    "tests/unit/controller/test_stale_controllers.py": "heavy",
    "tests/unit/lake/test_catalogs.py": "heavy",
    "tests/unit/lake/test_maintenance.py": "heavy",
    "tests/unit/log/bookkeeper/test_failures.py": "heavy",
    "tests/unit/process/test_autoscale.py": "heavy",
    "tests/unit/process/test_gc_scheduler.py": "heavy",
    "tests/unit/process/test_query_runner.py": "heavy",
    "tests/unit/rpc/test_floods.py": "heavy",
    "tests/unit/rpc/test_grpc_listener.py": "heavy",
    "tests/unit/registry/test_interleavings.py": "heavy",
    "tests/unit/registry/test_model.py": "heavy",
    "tests/unit/schemas/test_avro_compatibility.py": "heavy",
    "tests/unit/schemas/test_avro_definition.py": "heavy",
    "tests/unit/schemas/test_hostile_definitions.py": "heavy",
    "tests/unit/schemas/test_json_compatibility.py": "heavy",
    "tests/unit/schemas/test_protobuf_compatibility.py": "heavy",
    "tests/unit/schemas/test_protobuf_definition.py": "heavy",
    "tests/unit/schemas/test_protobuf_forms.py": "heavy",
    "tests/unit/schemas/test_protobuf_reader.py": "heavy",
    "tests/unit/search/test_batch_index.py": "heavy",
    "tests/unit/search/test_query_parser.py": "heavy",
    "tests/unit/search/test_scan_and_index_agree.py": "heavy",
    "tests/unit/security/test_every_call.py": "heavy",
    "tests/unit/security/test_login.py": "heavy",
    "tests/unit/serializers/test_formats.py": "heavy",
    "tests/unit/storage/test_directory_crash.py": "heavy",
    "tests/unit/sql/": "heavy",
    "tests/unit/store/flow_control/test_append_gate.py": "heavy",
    "tests/unit/store/flow_control/test_stream_rates.py": "heavy",
    "tests/unit/store/server/test_many_connections.py": "heavy",
    "tests/unit/store/tiering/test_event_boundaries.py": "heavy",
    "tests/unit/store/tiering/test_snapshot_memory.py": "heavy",
    "tests/unit/tools/test_trace.py": "heavy",
    "tests/unit/ops/verify/test_verify.py": "heavy",
    "tests/unit/training/test_shards.py": "heavy",
    "tests/unit/wire/test_append.py": "heavy",
    "tests/test_crash_states.py": "simulation",
    "tests/test_simulation": "simulation",
    "tests/unit/simulation/": "simulation",
    "tests/unit/models/": "simulation",
    "tests/unit/controller/model/test_codec.py": "simulation",
    "tests/unit/controller/test_crashes.py": "simulation",
    "tests/unit/coordination/test_assign.py": "simulation",
    "tests/unit/log/bookkeeper/test_random_faults.py": "simulation",
    "tests/unit/log/test_crash_states.py": "simulation",
    "tests/unit/log/test_faults.py": "simulation",
    "tests/unit/log/test_history.py": "simulation",
    "tests/unit/store/container/test_extents.py": "simulation",
    "tests/unit/store/tiering/test_compaction.py": "simulation",
    "tests/unit/client/core/test_broken_connections.py": "node",
    "tests/unit/client/streams/test_scaling.py": "node",
    "tests/unit/client/test_node_away.py": "node",
    "tests/unit/process/test_cycles.py": "node",
    "tests/unit/process/test_missing_pieces.py": "node",
    "tests/test_docs_site.py": "docs",
    "tests/examples/": "docs",
    "tests/guides/": "docs",
    "tests/interop/": "interop",
    "tests/lake_readers/": "spark",
    "tests/security/test_official_client.py": "interop",
    "tests/cluster/": "cluster",
    "tests/components/": "cluster",
    "tests/runbooks/": "cluster",
    SPARK: "spark",
    "tests/unit/spark/": "spark",
}


# A test that imports one of these starts a process, wherever it lies.
_STARTS = re.compile(
    r"^\s*(?:from|import) (?:subprocess|pyspark|tests\.(?:nodes|secured|fork_server|chaos|cluster|components))\b", re.M
)


@functools.cache
def cost_of(path: str) -> str:
    """Return the marker of a test file, whose path begins with `tests/`."""
    cost = COSTS.get(max((start for start in COSTS if path.startswith(start)), key=len, default=""), "node")
    return "node" if cost == "pure" and _STARTS.search((ROOT / path).read_text()) else cost


class TogetherScheduling(LoadScopeScheduling):
    """As `--dist loadfile`, with all files of Spark in one piece."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return SPARK if path.startswith(SPARK) else path


def pytest_xdist_make_scheduler(config, log):
    return TogetherScheduling(config, log)


def pytest_configure(config) -> None:
    config.pluginmanager.register(LeftThreads())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerCosts(config))
    elif config.getoption("dist", "no") != "no":
        config.pluginmanager.register(Costs())


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """What is collected stays until the end.  Searching it for garbage again and again cost a third of the collection,
    and more during the tests."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()
    # Loops and tasks make cycles by the thousand: a search after each 700 new objects was 4 % of the tests' time.
    gc.set_threshold(20_000, 20, 20)


@functools.cache
def _place(path: str) -> int:
    return next((at for at, start in enumerate(LONG) if path.startswith(start)), len(LONG))


def pytest_addoption(parser) -> None:
    parser.addoption("--cost", help="only the files of this cost; the others are not even imported")


def pytest_ignore_collect(collection_path, config):
    wanted = config.getoption("--cost")
    if not wanted or not collection_path.is_file():
        return None
    return cost_of(collection_path.relative_to(config.rootpath).as_posix()) != wanted or None


def pytest_collection_modifyitems(items) -> None:
    places = [(_place(path := item.nodeid.partition("::")[0]), at, path) for at, item in enumerate(items)]
    markers = {path: getattr(pytest.mark, cost_of(path)) for path in {path for *_, path in places}}
    for _, at, path in places:
        items[at].add_marker(markers[path])
    items[:] = [items[at] for _, at, _ in sorted(places)]
