"""Schemathesis against the REST API of a real node: requests that fit the OpenAPI document, and such that do not.

It fails for any answer of 500 or above, for one whose status or body the document does not have, and for a request
that does not fit and is accepted.  That requests are accepted that fit is left out: some are refused for reasons that
no schema can say (a time that ends before it begins; two fields that say two things).

With users, once more: as one who may do everything, and as one who may do nothing, and then has done nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.nodes import RunningNode
from tests.security.running import PASSWORD, write_files

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
LONG_SECONDS = 240
SECURED_SECONDS = 90


def fuzz(directory: Path, node: RunningNode, seconds: int, *, user: str = "") -> None:
    """Send requests that are made up from the document, for so long at most."""
    url = f"http://{node.http}"
    auth = (user, PASSWORD) if user else None
    document = httpx.get(f"{url}/openapi.json", auth=auth).json()
    # Streams of thousands of segments would take all of the time.
    document["components"]["schemas"]["ScalingConfig"]["properties"]["minSegments"]["anyOf"][0]["maximum"] = 5
    (directory / "openapi.json").write_text(json.dumps(document))
    command = [SCHEMATHESIS, "run", "openapi.json", "--url", url, "--no-color", "--generation-database", "none"]
    command += ["--auth", f"{user}:{PASSWORD}"] if user else []
    done = subprocess.run(
        [*command, "--exclude-checks", "positive_data_acceptance", "--warnings", "off", "--max-time", str(seconds)],
        cwd=directory, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
    assert "Traceback" not in node.log()


@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS)
def test_requests_made_up_from_the_document_are_answered_as_it_says(tmp_path) -> None:
    with RunningNode(tmp_path / "node", "--http-port", "0") as node:
        fuzz(tmp_path, node, LONG_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(4 * SECURED_SECONDS)
@pytest.mark.parametrize("user", ["root", "alice"])
def test_requests_of_a_user_are_answered_as_the_document_says(user, tmp_path) -> None:
    config = write_files(tmp_path / "security")
    options = ("--users", config.users, "--token-keys", config.token_keys)
    with RunningNode(tmp_path / "node", "--http-port", "0", *options) as node:
        root = httpx.Client(base_url=f"http://{node.http}/v1", auth=("root", PASSWORD))
        before = root.get("/scopes").json()
        fuzz(tmp_path, node, SECURED_SECONDS, user=user)
        after = root.get("/scopes").json()
        assert (after == before) == (user == "alice"), after
