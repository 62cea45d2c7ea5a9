"""The web layer of both faces, below a face that shows what its handlers get."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sarit.core.errors import NotFound, SaritError, Unauthenticated, Unavailable
from sarit.registry import web
from sarit.registry.limits import MAX_REGISTRY_BODY_BYTES
from sarit.registry.statistics import Statistics
from sarit.registry.web import Answer, Asked, Call, json_answer, routes
from sarit.security.permissions import Caller

CALLS = (
    Call("GET", "/", "root"),
    Call("GET", "/things", "list", query=("prefix", "deleted")),
    Call("GET", "/things/{thing}", "show"),
    Call("POST", "/things/{thing}", "add", body=True, changes=True),
    Call("GET", "/things/{thing}/parts/{part}", "part"),
    Call("GET", "/things/{thing}/parts/all", "parts"),
    Call("GET", "/missing", "missing"),
    Call("GET", "/later", "later"),
    Call("GET", "/broken", "broken"),
    Call("GET", "/slow", "slow"),
)


class ExampleFace:
    """A face whose errors are `[status, message]`."""

    name = "example"
    media_types = ("application/vnd.example+json", "application/json")

    def refusal(self, error: SaritError) -> Answer:
        status = {NotFound: 404, Unauthenticated: 401}.get(type(error), 503)
        return json_answer([status, str(error)], status)

    def failure(self, status: int, message: str) -> Answer:
        return json_answer([status, message], status)


async def echo(asked: Asked) -> Answer:
    caller = None if asked.caller is None else asked.caller.name
    return json_answer([asked.call.name, caller, dict(asked.path), dict(asked.query), asked.body])


async def missing(_: Asked) -> Answer:
    raise NotFound("no such thing")


async def later(_: Asked) -> Answer:
    raise Unavailable("not now")


async def broken(_: Asked) -> Answer:
    raise RuntimeError("a bug")


async def slow(_: Asked) -> Answer:
    await asyncio.sleep(60)
    raise AssertionError


SPECIAL = {"missing": missing, "later": later, "broken": broken, "slow": slow}


async def nobody(_) -> Caller | None:
    return None


def client(identify=nobody, prefix: str = "", statistics: Statistics | None = None) -> TestClient:
    handlers = {call.name: SPECIAL.get(call.name, echo) for call in CALLS}
    counted = statistics or Statistics(lambda: 0.0)
    return TestClient(Starlette(routes=routes(ExampleFace(), CALLS, handlers, identify, counted, prefix)))


def post(path: str, content: bytes, kind: str | None = "application/json", headers: dict[str, str] | None = None):
    typed = {} if kind is None else {"Content-Type": kind}
    return client().post(path, content=content, headers={**typed, **(headers or {})})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", ["root", None, {}, {}, None]),
        ("/things", ["list", None, {}, {}, None]),
        ("/things/", ["list", None, {}, {}, None]),
        ("/things?prefix=a%20b&unknown=1&unknown=2", ["list", None, {}, {"prefix": "a b"}, None]),
        ("/things?prefix=", ["list", None, {}, {"prefix": ""}, None]),
        ("/things/a%2Fb", ["show", None, {"thing": "a/b"}, {}, None]),
        ("/things/%C3%A4%00+", ["show", None, {"thing": "ä\0+"}, {}, None]),
        ("/things/%zz", ["show", None, {"thing": "%zz"}, {}, None]),
        ("/things/x/parts/7", ["part", None, {"thing": "x", "part": "7"}, {}, None]),
        ("/things/x/parts/all", ["parts", None, {"thing": "x"}, {}, None]),
    ],
)
def test_paths_and_queries(path, found) -> None:
    assert client().get(path).json() == found
    assert client(prefix="/registry/example").get("/registry/example" + path).json() == found


@pytest.mark.parametrize("path", ["/other", "/things//parts/7", "/things/x/parts", "/things/x//"])
def test_unknown_paths_are_left_to_others(path) -> None:
    assert client().get(path).text == "Not Found"


def test_a_prefix_alone_is_the_root_and_other_prefixes_are_left_to_others() -> None:
    assert client(prefix="/p").get("/p/").json()[0] == "root"
    assert client(prefix="/p").get("/things").text == "Not Found"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/things/%ff", "a name in the path is not UTF-8, escaped with percent signs"),
        ("/things?prefix=%ff", "the query is not UTF-8, escaped with percent signs"),
        ("/things?prefix=a&prefix=b", "the parameter prefix is given twice"),
    ],
)
def test_bad_names_and_queries(path, message) -> None:
    assert client().get(path).json() == [400, message]


def test_bodies() -> None:
    for kind in ("application/json", "application/vnd.example+json; charset=utf-8", "Application/JSON"):
        answer = post("/things/x", b'{"a": [1]}', kind)
        assert (answer.status_code, answer.json()[-1]) == (200, {"a": [1]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is empty"),
        (b"\xff", "the body is not UTF-8"),
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "too many levels"),
        (b"[NaN]", "NaN is no number"),
        (b'{"a": 1, "a": 2}', "a field twice"),
        (b'["\\ud800"]', "half a surrogate pair"),
        (b"9" * 10_000, "not JSON that anybody needs"),
    ],
)
def test_bad_bodies(content, message) -> None:
    answer = post("/things/x", content)
    assert answer.status_code == 400
    assert message in answer.json()[1]


def test_surrogate_pairs_are_characters() -> None:
    assert post("/things/x", b'["\\ud83d\\ude00"]').json()[-1] == ["\U0001f600"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None, "x" * 1000])
def test_other_types_of_bodies(kind) -> None:
    answer = post("/things/x", b"{}", kind)
    assert answer.status_code == 415
    assert "send it with Content-Type: application/vnd.example+json" in answer.json()[1]
    assert len(answer.content) < 300


def test_bodies_are_bounded(monkeypatch) -> None:
    assert post("/things/x", b"{}", headers={"Content-Length": str(MAX_REGISTRY_BODY_BYTES + 1)}).status_code == 413
    assert post("/things/x", b"{}", headers={"Content-Length": "9" * 5000}).status_code == 413
    monkeypatch.setattr(web, "MAX_REGISTRY_BODY_BYTES", 10)

    def pieces():
        yield b'"12345'
        yield b'67890"'

    answer = client().post("/things/x", content=pieces(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()[1]) == (413, "a body has at most 10 bytes")


def test_bodies_of_all_requests_are_bounded_together(monkeypatch) -> None:
    monkeypatch.setattr(web, "MAX_REGISTRY_BODIES_BYTES", 100)
    counted = Statistics(lambda: 0.0)
    http = client(statistics=counted)
    counted.body_bytes = 95  # of other requests
    answer = http.post("/things/x", content=b'"12345"', headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    counted.body_bytes = 93
    for content, status in ((b'"12345"', 200), (b'"1234', 400)):
        answer = http.post("/things/x", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == status
        assert counted.body_bytes == 93


def test_methods() -> None:
    assert client().head("/things").status_code == 200
    answer = client().put("/things/x")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert answer.json() == [405, "PUT is not possible here, but GET, HEAD, POST"]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/vnd.example+json"),
        ("*/*", "application/vnd.example+json"),
        ("text/html", "application/vnd.example+json"),
        ("text/html, application/json;q=0.9", "application/json"),
    ],
)
def test_types_of_answers(accept, kind) -> None:
    headers = {} if accept is None else {"Accept": accept}
    for path in ("/things", "/missing"):
        assert client().get(path, headers=headers).headers["content-type"] == kind


def test_errors(monkeypatch, caplog) -> None:
    assert client().get("/missing").json() == [404, "no such thing"]
    answer = client().get("/later")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    with caplog.at_level(logging.ERROR, "sarit.registry"):
        answer = client().get("/broken")
    assert answer.status_code == 500
    assert "a bug" not in answer.text
    assert "RuntimeError: a bug" in caplog.text
    monkeypatch.setattr(web, "REGISTRY_ANSWER_SECONDS", 0.01)
    answer = client().get("/slow")
    assert answer.json() == [503, "no outcome within 0.01 s: a change may still be made"]
    assert answer.headers["retry-after"] == "1"


def test_callers() -> None:
    async def identify(request) -> Caller:
        if "authorization" not in request.headers:
            raise Unauthenticated("log in")
        return Caller("ann")

    assert client(identify).get("/things", headers={"Authorization": "x"}).json()[1] == "ann"
    for method in ("GET", "PATCH"):
        answer = client(identify).request(method, "/things")
        assert (answer.status_code, answer.json()) == (401, [401, "log in"])
        assert answer.headers["www-authenticate"].startswith("Basic ")


def test_requests_are_counted() -> None:
    times = iter(range(100))
    counted = Statistics(lambda: next(times))
    asked = client(statistics=counted)
    asked.get("/things/x")
    asked.get("/things/y")
    asked.get("/missing")
    asked.patch("/missing")
    assert counted.requests == {
        ("example", "show", 200): 2, ("example", "missing", 404): 1, ("example", "other", 405): 1,
    }  # fmt: skip
    assert counted.seconds["example", "show"].count == 2


def test_changes_are_logged_with_a_bounded_path(caplog) -> None:
    with caplog.at_level(logging.INFO, "sarit.registry"):
        post("/things/" + "%0A" * 5000, json.dumps({}).encode())
        client().get("/things")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "sarit.registry"]
    assert line.startswith("POST '/things/\\n")
    assert len(line) < 300
