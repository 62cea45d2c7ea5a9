"""Sarit's client on any server of the protocol."""

from __future__ import annotations

from sarit.client.aio import Client
from sarit.client.core.addresses import parse_addresses
from sarit.client.core.controller import ControllerClient
from sarit.client.session.session import Session
from sarit.env.real import real_env


async def connect(address: str) -> Client:
    """As `sarit.client.aio.connect`, but without its first call: Pravega standalone refuses to list its controllers."""
    return Client(Session(real_env(), ControllerClient(parse_addresses(address))))
