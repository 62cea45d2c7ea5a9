"""Every call of Confluent's API with drawn names, queries and bodies: an answer of the API each, and never a bug."""

from __future__ import annotations

import json
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sarit.registry.confluent.calls import CALLS
from tests.unit.registry.confluent.asking import Asking, asking

NAMES = st.one_of(
    st.sampled_from(
        [
            "s",
            "latest",
            "-1",
            "1",
            "0",
            "9" * 30,
            ":.n:s",
            ":.n:",
            ":.",
            ":*:",
            ":.__GLOBAL:",
            "",
            " ",
            "/",
            "%",
            "..",
            "\u202e",
            "\0",
            "\U0001f600",
            "true",
            "s" * 300,
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | NAMES
    | st.sampled_from(['"string"', "AVRO", "JSON", "PROTOBUF", "FULL", "READONLY", "IMPORT", '{"type":"record"}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = (
    "schema", "schemaType", "references", "id", "version", "metadata", "ruleSet", "compatibility", "mode", "alias",
    "name", "subject",
)  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4) | VALUES


@st.composite
def requests(draw):
    call = draw(st.sampled_from(CALLS))
    path = "/".join(
        quote(draw(NAMES), safe="") or "%20" if part.startswith("{") else part for part in call.path.split("/")
    )
    query = "&".join(
        f"{name}={quote(draw(NAMES), safe='')}" for name in draw(st.sets(st.sampled_from(call.query or ("x",))))
    )
    body = draw(BODIES) if call.body else None
    return call.method, f"{path}?{query}", body


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=1, max_size=6))
def test_each_request_has_an_answer_of_the_api(asked) -> None:
    @asking
    async def run(ask: Asking) -> None:
        await ask.register("s")
        for method, path, body in asked:
            content = None if body is None else json.dumps(body).encode()
            headers = {} if body is None else {"Content-Type": "application/json"}
            answer = await ask.http.request(method, path, content=content, headers=headers)
            assert answer.status_code < 500, (method, path, body, answer.text)
            if answer.status_code >= 400:
                value = answer.json()
                assert set(value) == {"error_code", "message"}
                assert len(answer.content) < 3000, answer.text
            assert await ask.get("/schemas/types")

    run()
