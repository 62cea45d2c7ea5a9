"""The trickle, scaled down, and its verdicts."""

from dataclasses import replace

from sarit.core.limits import MIB
from tests.scale.trickle import Plan, Result, run_trickle, violations

PLAN = Plan(120, 10, 6000, 256 * MIB, containers=1)
GOOD = Result("appends", 500, 1, 0, 100, 64, 10, 20)


def test_a_small_trickle_stays_within_its_bounds(tmp_path):
    results = run_trickle(tmp_path, PLAN)
    assert [violations(PLAN, result) for result in results] == [[], []]
    assert all(result.content_mib > 0 for result in results)


def test_each_bound_of_a_trickle_is_checked():
    assert violations(PLAN, GOOD) == []
    assert "MiB of memory" in violations(PLAN, replace(GOOD, peak_mib=557))[0]
    assert "inlined extents" in violations(PLAN, replace(GOOD, most_inlined=65))[0]
    assert "the index has" in violations(PLAN, replace(GOOD, index_mib=100))[0]
