"""The links of an installation by REST: their bodies, and what each operation does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.links import HoldOverflow, LinkDirection, LinkSettings, LinkState
from sarit.core.policies import RetentionPolicy, RetentionType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.admin.rest.asked import Asked, Handler
    from sarit.client.aio import Client
    from sarit.core.links import LinkInfo, StreamProblem

# The fields of a body that have the type of their setting, by their names in JSON.
_PLAIN: Final = {
    "user": "user", "password": "password", "ca": "ca", "bytesPerSecond": "bytes_per_second", "window": "window",
    "startMs": "start_ms", "followTruncation": "follow_truncation", "holdBytes": "hold_bytes", "tables": "tables",
    "registry": "registry", "groups": "groups", "restart": "restart", "discardDivergent": "discard_divergent",
}  # fmt: skip


async def list_links(client: Client, asked: Asked) -> Any:
    """List the links."""
    return {"links": [link_property(link) for link in await client.links.list()]}


async def create_link(client: Client, asked: Asked) -> Any:
    """Create a link."""
    settings = settings_of(asked.body["settings"])
    made = await client.links.create(asked.body["linkName"], settings, paused=bool(asked.body.get("paused")))
    return link_property(made)


async def get_link(client: Client, asked: Asked) -> Any:
    """Return the document of a link."""
    return link_property(await client.links.get(asked.path["linkName"]))


async def update_link(client: Client, asked: Asked) -> Any:
    """Replace the settings of a link."""
    return link_property(await client.links.change(asked.path["linkName"], settings_of(asked.body)))


async def update_link_state(client: Client, asked: Asked) -> Any:
    """Pause or resume a link."""
    name, links = asked.path["linkName"], client.links
    paused = asked.body["state"] == LinkState.PAUSED.value
    return link_property(await (links.pause(name) if paused else links.resume(name)))


async def promote_link(client: Client, asked: Asked) -> Any:
    """Promote mirrors of a link: in a planned way, or as many as one call does."""
    done = await client.links.promote(asked.path["linkName"], planned=asked.body["planned"])
    return {
        "link": link_property(done.link),
        "promoted": done.promoted,
        "left": done.left,
        "problems": _problems(done.problems),
    }


async def delete_link(client: Client, asked: Asked) -> None:
    """Delete a link."""
    await client.links.delete(asked.path["linkName"])


def settings_of(body: dict[str, Any]) -> LinkSettings:
    """Return the settings in a body; what is absent or null is as in a new link."""
    given = {name: value for name, value in body.items() if value is not None}
    found = {setting: given[name] for name, setting in _PLAIN.items() if name in given}
    found |= {name: tuple(given[name]) for name in ("include", "exclude") if name in given}
    if "priorities" in given:
        found["priorities"] = tuple((each["glob"], each["level"]) for each in given["priorities"])
    if "overflow" in given:
        found["overflow"] = HoldOverflow(given["overflow"])
    if "retention" in given:
        kept = given["retention"]
        kind = RetentionType[kept["type"].upper()]
        found["retention"] = RetentionPolicy(kind, kept["limit"], kept.get("maximum") or 0)
    return LinkSettings(LinkDirection(given["direction"]), given["peer"], **found)


def link_property(link: LinkInfo) -> dict[str, Any]:
    """Return the document of a link."""
    status = link.status
    return {
        "linkName": link.name,
        "id": link.link_id.hex(),
        "created": link.created_ms,
        "role": link.role.value,
        "state": link.state.value,
        "settings": _settings(link.settings),
        "peerInstallation": link.peer_installation,
        "holder": link.holder,
        "problem": link.problem,
        "status": {
            "up": status.up,
            "contact": status.contact_ms,
            "streams": status.streams,
            "lagBytes": status.lag_bytes,
            "lagSeconds": status.lag_seconds,
            "copiedBytes": status.copied_bytes,
            "lostBytes": status.lost_bytes,
            "clockSkewMs": status.clock_skew_ms,
            "compressed": status.compressed,
            "failing": status.failing,
            "note": status.note,
            "problems": _problems(status.problems),
        },
    }


def _settings(settings: LinkSettings) -> dict[str, Any]:
    kept = settings.retention
    found: dict[str, Any] = {
        "direction": settings.direction.value,
        "peer": settings.peer,
        "include": list(settings.include),
        "exclude": list(settings.exclude),
        "priorities": [{"glob": glob, "level": level} for glob, level in settings.priorities],
        "overflow": settings.overflow.value,
        **{name: getattr(settings, setting) for name, setting in _PLAIN.items()},
    }
    if kept is not None:
        found["retention"] = {"type": kept.type.name.lower(), "limit": kept.limit, "maximum": kept.maximum}
    return found


def _problems(problems: Iterable[StreamProblem]) -> list[dict[str, str]]:
    return [{"stream": problem.stream, "text": problem.text} for problem in problems]


LINK_HANDLERS: Final[dict[str, Handler]] = {
    "listLinks": list_links,
    "createLink": create_link,
    "getLink": get_link,
    "updateLink": update_link,
    "updateLinkState": update_link_state,
    "promoteLink": promote_link,
    "deleteLink": delete_link,
}
