"""Schemathesis against the REST API of a real node: requests that fit the OpenAPI document, and such that do not.

It fails for any answer of 500 or above, for one whose status or body the document does not have, and for a request
that does not fit and is accepted.  That requests are accepted that fit is left out: some are refused for reasons that
no schema can say (a time that ends before it begins; two fields that say two things).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.nodes import RunningNode

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
LONG_SECONDS = 240


@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS)
def test_requests_made_up_from_the_document_are_answered_as_it_says(tmp_path) -> None:
    with RunningNode(tmp_path / "node", "--http-port", "0") as node:
        url = f"http://{node.http}"
        document = httpx.get(f"{url}/openapi.json").json()
        # Streams of thousands of segments would take all of the time.
        document["components"]["schemas"]["ScalingConfig"]["properties"]["minSegments"]["maximum"] = 5
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        command = [SCHEMATHESIS, "run", "openapi.json", "--url", url, "--no-color", "--generation-database", "none"]
        done = subprocess.run(
            [*command, "--exclude-checks", "positive_data_acceptance", "--warnings", "off",
             "--max-time", str(LONG_SECONDS)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert "passed" in done.stdout
        assert "Traceback" not in node.log()
