"""Policies of compatibility in the form of Pravega's API.  Pure.

All of its policies can be shown and set.  Confluent's modes other than READWRITE are shown as DenyAll, the nearest
stricter policy, and while one is in force no policy can be set here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Invalid
from sarit.registry.values import Mode
from sarit.schemas.compatibility import Policy, PolicyName, Span, Till
from sarit.schemas.definitions import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sarit.registry.pravega.fields import Fields
    from sarit.registry.values import Settings

_POLICIES: Final = tuple(policy.value for policy in PolicyName)
_DENY_ALL: Final = Policy(PolicyName.DENY_ALL)
_FREE: Final = (PolicyName.ALLOW_ANY, PolicyName.DENY_ALL)
_DIRECTIONS: Final = {"backwardPolicy": "Backward", "forwardPolicy": "Forward"}


def read_policy(fields: Fields) -> Policy:
    """Return the policy of a Compatibility.  Raises Invalid."""
    name = PolicyName(fields.one_of("policy", _POLICIES))
    if name is not PolicyName.ADVANCED:
        return Policy(name)
    advanced = fields.object("advanced")
    backward, forward = (
        _read_span(advanced.object(field).object(field), direction) if field in advanced else None
        for field, direction in _DIRECTIONS.items()
    )
    return Policy(name, backward, forward)


def _read_span(fields: Fields, direction: str) -> Span | Till:
    latest, every, till = (f"{direction}{which}" for which in ("", "Transitive", "Till"))
    name = fields.one_of("name", (latest, every, till))
    if name == till:
        return Till(fields.object("versionInfo").number("id") + 1)
    return Span.EVERY if name == every else Span.LATEST


def versions_of(policy: Policy) -> set[int]:
    """Return the numbers of the versions that a policy names."""
    return {span.version for span in (policy.backward, policy.forward) if isinstance(span, Till)}


def check_versions(policy: Policy, numbers: Collection[int]) -> None:
    """Raises Invalid for a policy that names a version which is none of these: it would compare nothing."""
    for number in versions_of(policy):
        if number not in numbers:
            raise Invalid(f"the policy names the schema id {number - 1}, which the group does not have")


def check_format(policy: Policy, kind: Kind | None, *, new: bool) -> None:
    """Raises Invalid for a policy that Pravega has for groups of the format Avro alone.

    `new`: of a group that is created.  A group of any format that is there may hold Avro schemas of Confluent's API."""
    if policy.name in _FREE or kind is Kind.AVRO or (kind is None and not new):
        return
    raise Invalid(f"the policy {policy.name.value} is for the format Avro alone: use AllowAny or DenyAll")


def shown_policy(settings: Settings) -> Policy:
    """Return the policy by which Pravega's API shows settings that are in force."""
    if settings.mode is not Mode.READWRITE:
        return _DENY_ALL
    assert settings.policy is not None
    return settings.policy


def policy_body(policy: Policy, infos: Mapping[int, Any]) -> dict[str, Any]:
    """Return the Compatibility of a policy.  `infos`: the VersionInfo of each version that it names.

    A version that is deleted for good cannot be shown: the stricter policy that names none stands in its place."""
    if policy.name is not PolicyName.ADVANCED:
        return {"policy": policy.name.value}
    advanced = {
        field: {field: _span_body(span, direction, infos)}
        for (field, direction), span in zip(_DIRECTIONS.items(), (policy.backward, policy.forward), strict=True)
        if span is not None
    }
    return {"policy": policy.name.value, "advanced": advanced}


def _span_body(span: Span | Till, direction: str, infos: Mapping[int, Any]) -> dict[str, Any]:
    if isinstance(span, Till) and span.version in infos:
        return {"name": f"{direction}Till", "versionInfo": infos[span.version]}
    return {"name": direction if span is Span.LATEST else f"{direction}Transitive"}
