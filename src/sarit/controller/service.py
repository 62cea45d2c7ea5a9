"""The handlers of the controller's API, by path.

Every rpc of controller.proto and sarit.proto is served by the method of that name in exactly one family of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sarit.rpc.handlers import rpc_handler

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sarit.rpc.handlers import AccessCheck, Handler
    from sarit.rpc.methods import Methods
    from sarit.rpc.request_limiter import RequestLimiter


def handlers(
    service: Methods, families: Sequence[object], limiter: RequestLimiter, access: AccessCheck | None = None,
    wide: Collection[str] = (),
) -> dict[str, Handler]:  # fmt: skip
    """Return the handlers of all rpcs of a service.  `wide`: the names of those that open a wide window."""
    found = {}
    for name in service:
        path, request_type, _ = getattr(service, name)
        found[path] = rpc_handler(_method(families, name), request_type, limiter, access, wide=name in wide)
    return found


def _method(families: Sequence[object], name: str) -> Any:
    found = [getattr(family, name) for family in families if hasattr(family, name)]
    assert len(found) == 1, f"rpc {name} is served by {len(found)} families"
    return found[0]
