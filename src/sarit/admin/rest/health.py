"""Health in the form of Pravega's API: the process, and its containers as its parts.

Each answer is 200, as Pravega's is: who asks reads the body.  Probes want `/readyz` and `/livez` (`admin/health.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.admin.reasons import HealthPort
    from sarit.admin.rest.asked import Asked

_STATES: Final = {"starting": "STARTING", "stopping": "DOWN"}
# Of a container, by the word that the store has for it.
_CONTAINERS: Final = {"serving": "UP", "opening": "STARTING", "draining": "DOWN", "failed": "FAILED"}
_ABSENT: Final = "absent"  # another store has it


def health_result(health: HealthPort) -> dict[str, Any]:
    """Everything: the process with its parts."""
    details = health.details()
    containers = details.pop("containers", [])
    broken = [reason for reason in health.reasons() if not reason.ready]
    status = _STATES.get(health.state(), "DOWN" if broken else "UP")
    shown = {name: _text(value) for name, value in details.items()}
    for reason in health.reasons():
        shown[f"{reason.part}: {reason.code}"] = reason.text
    children = {
        f"container-{found['container']}": _container(found) for found in containers if found["state"] != _ABSENT
    }
    return _result("-".join(str(details.get("name", "sarit")).split()), status, shown, children)


def _container(found: dict[str, Any]) -> dict[str, Any]:
    name = f"container-{found['container']}"
    shown = {key: _text(value) for key, value in found.items()}
    return _result(name, _CONTAINERS[found["state"]], shown, {})


def _result(name: str, status: str, details: dict[str, str], children: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "readiness": status == "UP",
        "liveness": True,
        "details": details,
        "children": children,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def handlers(health: HealthPort) -> dict[str, Callable[[Asked], Awaitable[Any]]]:
    """Return the handlers of the operations on health, by the names of the operations."""

    def handler(field: str | None) -> Callable[[Asked], Awaitable[Any]]:
        async def answer(asked: Asked) -> Any:
            found = health_result(health)
            part = asked.path.get("id", found["name"])
            if part != found["name"]:
                if part not in found["children"]:
                    raise NotFound(f"there is no part {part}: there are {', '.join(found['children']) or 'none'}")
                found = found["children"][part]
            return found if field is None else found[field]

        return answer

    fields = {
        "Readiness": "readiness",
        "Liveness": "liveness",
        "Details": "details",
        "Status": "status",
        "Health": None,
    }
    return {f"get{who}{what}": handler(field) for what, field in fields.items() for who in ("", "Contributor")}
