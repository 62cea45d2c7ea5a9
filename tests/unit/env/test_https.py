"""Fetching a document: from a server on this machine, bounded in size and time, never redirected."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from sarit.core.errors import Invalid, Unavailable
from sarit.env.https import check_url, fetch

BODY = b'{"keys": []}'


class Handler(BaseHTTPRequestHandler):
    """Answers by its path."""

    def do_GET(self) -> None:
        self.send_response({"/moved": 302, "/missing": 404}.get(self.path, 200))
        if self.path == "/moved":
            self.send_header("Location", "/keys")
        self.end_headers()
        self.wfile.write(BODY * 1000 if self.path == "/long" else BODY)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server():
    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()
    thread.join()


def _fetch(url, now=lambda: 0.0):
    return fetch(url, None, 10.0, 1000, now)


def test_document_is_fetched(server):
    assert _fetch(f"{server}/keys") == BODY


@pytest.mark.parametrize(
    ("path", "message"), [("/moved", "answers 302"), ("/missing", "answers 404"), ("/long", "more than 1000 bytes")]
)
def test_other_answers_are_refused(server, path, message):
    with pytest.raises(Unavailable, match=message):
        _fetch(server + path)


def test_server_that_sends_slowly_is_given_up(server):
    ticks = count(0, 6)
    with pytest.raises(Unavailable, match="did not answer whole within 10 s"):
        fetch(f"{server}/long", None, 10.0, 1 << 20, lambda: float(next(ticks) * 2))


def test_server_that_is_away_is_unavailable():
    with pytest.raises(Unavailable, match="cannot be fetched"):
        _fetch("http://127.0.0.1:1/keys")


@pytest.mark.parametrize(
    "url", ["http://example.com/k", "http://127.0.0.1.example.com/k", "file:///k", "https://", "https://h:x/", "k", "https://u@h/"]
)  # fmt: skip
def test_urls_that_are_not_safe_are_refused(url):
    with pytest.raises(Invalid):
        check_url(url)


def test_ca_that_cannot_be_read_is_named():
    with pytest.raises(Invalid, match="/nowhere/ca.pem"):
        fetch("https://127.0.0.1:1/", "/nowhere/ca.pem", 1.0, 10, lambda: 0.0)
