"""Calls of Confluent's API on settings: levels of compatibility, and modes.

A policy of Pravega's that is no level is shown as the nearest one that allows less, DenyAll as the mode READONLY.  This
API does not change such a policy, which would make it weaker without saying so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.core.errors import Invalid
from sarit.registry.access import Operation
from sarit.registry.confluent.bodies import read_flag, read_level, read_mode
from sarit.registry.confluent.errors import NO_MODE, NOT_PERMITTED, Refused
from sarit.registry.confluent.subjects import parse_level, subject_of
from sarit.registry.errors import Missing, NotThere
from sarit.registry.values import GroupName, Mode, Settings
from sarit.registry.web import Answer, json_answer
from sarit.schemas.compatibility import PolicyName, is_level, level_of, policy_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.access import Guard
    from sarit.registry.registry import Registry
    from sarit.registry.web import Asked, Handler
    from sarit.schemas.compatibility import Policy

_EVERYTHING = GroupName("", "")


class SettingCalls:
    """The handlers of `/config` and `/mode`."""

    def __init__(self, registry: Registry, guard: Guard) -> None:
        self._registry = registry
        self._guard = guard

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their calls."""
        return {
            "show_level": self._show_level,
            "set_level": self._set_level,
            "remove_level": self._remove_level,
            "show_subject_level": self._show_level,
            "set_subject_level": self._set_level,
            "remove_subject_level": self._remove_level,
            "show_mode": self._show_mode,
            "set_mode": self._set_mode,
            "remove_mode": self._remove_mode,
            "show_subject_mode": self._show_mode,
            "set_subject_mode": self._set_mode,
            "remove_subject_mode": self._remove_mode,
        }

    async def _show_level(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW_SETTINGS)
        found = await self._shown_settings(asked, name)
        if found.policy is None:
            raise NotThere(
                Missing.SETTING, f"Subject {subject_of(name)!a} does not have subject-level compatibility configured"
            )
        return json_answer({"compatibilityLevel": level_of(found.policy).value})

    async def _set_level(self, asked: Asked) -> Answer:
        name, level = self._name(asked, Operation.SET_POLICY), read_level(asked.body)
        if level is None:
            return json_answer({})
        _must_be_level((await self._own(name)).policy)
        await self._registry.set_policy(name, policy_of(level))
        return json_answer({"compatibility": level.value})

    async def _remove_level(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SET_POLICY)
        policy = (await self._own(name)).policy
        if policy is None and name != _EVERYTHING:
            raise _no_settings(name)
        if policy is None:
            policy = (await self._registry.settings(name)).policy
        else:
            _must_be_level(policy)
            await self._registry.set_policy(name, None)
        assert policy is not None
        return json_answer({"compatibilityLevel": level_of(policy).value})

    async def _show_mode(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SHOW_SETTINGS)
        mode = _shown_mode(await self._shown_settings(asked, name))
        if mode is None:
            raise Refused(NO_MODE, f"Subject {subject_of(name)!a} does not have subject-level mode configured")
        return json_answer({"mode": mode.value})

    async def _set_mode(self, asked: Asked) -> Answer:
        name, mode = self._name(asked, Operation.SET_MODE), read_mode(asked.body)
        if mode is not Mode.READONLY:
            policy = (await self._own(name)).policy
            if policy is not None and policy.name is PolicyName.DENY_ALL:
                raise _no_level()
        try:
            await self._registry.set_mode(name, mode, force=read_flag(asked.query, "force"))
        except Invalid as error:
            raise Refused(NOT_PERMITTED, str(error)) from None
        return json_answer({"mode": mode.value})

    async def _remove_mode(self, asked: Asked) -> Answer:
        name = self._name(asked, Operation.SET_MODE)
        mode = (await self._own(name)).mode
        if mode is None and name != _EVERYTHING:
            raise _no_settings(name)
        if mode is None:
            mode = (await self._registry.settings(name)).mode
        else:
            await self._registry.set_mode(name, None)
        assert mode is not None
        return json_answer({"mode": mode.value})

    def _name(self, asked: Asked, operation: Operation) -> GroupName:
        """Return the group, context or installation that a request is about.  Raises Refused, Forbidden."""
        name = parse_level(asked.path.get("subject", ""), asked.path.get("context"))
        self._guard.check(asked.caller, operation, name, asked.peer)
        return name

    async def _shown_settings(self, asked: Asked, name: GroupName) -> Settings:
        """Return the settings of a name: its own, or those in force."""
        if name == _EVERYTHING or read_flag(asked.query, "defaultToGlobal"):
            return await self._registry.settings(name)
        return await self._own(name)

    async def _own(self, name: GroupName) -> Settings:
        try:
            return await self._registry.own_settings(name)
        except NotThere as error:
            if error.what is Missing.SETTING:
                return Settings()
            raise


def _shown_mode(found: Settings) -> Mode | None:
    if (
        found.policy is not None
        and found.policy.name is PolicyName.DENY_ALL
        and found.mode is not Mode.READONLY_OVERRIDE
    ):
        return Mode.READONLY
    return found.mode


def _must_be_level(policy: Policy | None) -> None:
    """Raises Refused: a policy is set that this API cannot express."""
    if policy is not None and not is_level(policy):
        raise _no_level()


def _no_level() -> Refused:
    return Refused(
        409, "The policy is one that this API cannot express: change it through the API of Pravega's registry"
    )


def _no_settings(name: GroupName) -> NotThere:
    return NotThere(Missing.GROUP, f"Subject {subject_of(name)!a} not found.")
