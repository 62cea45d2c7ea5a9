"""Where a bookie's HTTP admin is, from the bytes of its registration."""

from __future__ import annotations

import pytest

from sarit.log.bookkeeper.registration import admin_address


def endpoint(name: bytes, port: int, host: bytes, protocol: bytes) -> bytes:
    body = b"".join(
        bytes([number << 3 | 2, len(text)]) + text for number, text in ((1, name), (3, host), (4, protocol))
    )
    body += bytes([2 << 3, port & 0x7F | 0x80, port >> 7])
    return bytes([6 << 3 | 2, len(body)]) + body


# As a bookie of 4.17.3 without an admin server registers itself.
REAL = b'2#\n\x06bookie\x10\xdb\x8e\x03\x1a\t127.0.0.1"\nbookie-rpc'
HTTP = endpoint(b"httpserver", 8080, b"10.0.0.7", b"http")


@pytest.mark.parametrize("data", [b"", REAL, b"\xff" * 9, REAL[:-3], endpoint(b"httpserver", 0, b"h", b"http")])
def test_bookie_without_an_admin_server(data):
    assert admin_address(data) is None


@pytest.mark.parametrize("data", [HTTP, REAL + HTTP, HTTP + REAL])
def test_bookie_with_an_admin_server(data):
    assert admin_address(data) == ("10.0.0.7", 8080)
