"""`--interop-endpoint HOST:PORT`: run against a controller that is there already (real Pravega, say)."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption(
        "--interop-endpoint",
        metavar="HOST:PORT",
        help="controller to run the interop scenarios against, instead of a node started here (no kills then)",
    )
