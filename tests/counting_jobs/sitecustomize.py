"""Makes the kind of background job of tests known to every process of Python that has this folder in its path."""

from sarit.process.job_kinds import KINDS

KINDS["count"] = "tests.unit.process.counting_job"
