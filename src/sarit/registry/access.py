"""Who may do what at the registry: the table of its operations, for both faces.

Resources are named as Pravega's registry names them, by group; a rule of `sarit acl` grants READ or READ_UPDATE.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from sarit.core.errors import Forbidden
from sarit.security.audit import NoAudit
from sarit.security.permissions import ROOT, Permission, namespace_resource, schema_group_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sarit.registry.values import GroupName, Holder
    from sarit.security.audit import Audit
    from sarit.security.permissions import Caller


class Operation(Enum):
    """An operation that a face does for a caller; the table says which permission it needs on the group."""

    LIST = "list"
    SHOW = "show"
    REGISTER = "register"
    CHECK = "check"
    DELETE = "delete"
    CREATE = "create"
    SHOW_SETTINGS = "show settings"
    SET_POLICY = "set policy"
    SET_MODE = "set mode"
    SHOW_ENCODING = "show encoding"
    ADD_ENCODING = "add encoding"
    ADD_CODEC = "add codec"


# The permission that an operation needs on its group.  Operations on the settings of a namespace, whose group is empty,
# need it on the namespace, or for the default one on everything.
NEEDS: Final[Mapping[Operation, Permission]] = {
    Operation.LIST: Permission.NONE,  # a list shows what one may read
    Operation.SHOW: Permission.READ,
    Operation.REGISTER: Permission.READ_UPDATE,
    Operation.CHECK: Permission.READ,
    Operation.DELETE: Permission.READ_UPDATE,
    Operation.CREATE: Permission.READ_UPDATE,
    Operation.SHOW_SETTINGS: Permission.READ,
    Operation.SET_POLICY: Permission.READ_UPDATE,
    Operation.SET_MODE: Permission.READ_UPDATE,
    Operation.SHOW_ENCODING: Permission.READ,
    # As in Pravega: who writes events of a schema that is there need not be able to add schemas.
    Operation.ADD_ENCODING: Permission.READ,
    Operation.ADD_CODEC: Permission.READ_UPDATE,
}


class Guard:
    """Checks callers; without users (caller None) everybody may do everything."""

    def __init__(
        self, permission: Callable[[Caller, str], Permission] | None = None, audit: Audit | None = None
    ) -> None:
        """`permission`: returns what the rules give a caller on a resource; None: there are no users."""
        self._permission = permission
        self._audit = audit or NoAudit()

    def __repr__(self) -> str:
        return f"<Guard {'without' if self._permission is None else 'with'} users>"

    def check(self, caller: Caller | None, operation: Operation, name: GroupName, peer: str = "") -> None:
        """Note the decision in the audit log.  Raises Forbidden.

        `name`: with an empty group its namespace.  `peer`: the caller's address and port."""
        if caller is None or self._permission is None:
            return
        needed, resource = NEEDS[operation], resource_of(name)
        allowed = self._permission(caller, resource) >= needed
        if operation is Operation.CREATE:
            # Who may change a namespace creates groups in it, as in Pravega.
            allowed = allowed or self._permission(caller, namespace_resource(name.namespace)) >= needed
        what = f"registry: {operation.value}"
        self._audit.note(who=caller.name, what=what, resource=resource, peer=peer, allowed=allowed)
        if not allowed:
            verb = "read" if needed is Permission.READ else "change"
            raise Forbidden(
                f"{caller.name} may not {verb} {resource}: an administrator gives the permission with "
                f"`sarit acl grant user:{caller.name} '{resource}' {needed.name}`"
            )

    def sees(self, caller: Caller | None, name: GroupName) -> bool:
        """Return whether a caller may know of a group: lists leave out the others."""
        if caller is None or self._permission is None:
            return True
        return self._permission(caller, resource_of(name)) >= Permission.READ

    def sees_schema(self, caller: Caller | None, holders: Iterable[Holder]) -> bool:
        """Return whether a caller may read a schema by its id: it has READ on one of the groups that hold it."""
        if caller is None or self._permission is None:
            return True
        return any(self.sees(caller, name) for name in {one.name for one in holders})


def resource_of(name: GroupName) -> str:
    """Return the resource of a group, or with an empty group that of its namespace; of the default one everything."""
    if name.group:
        return schema_group_resource(name.namespace, name.group)
    return namespace_resource(name.namespace) if name.namespace else ROOT
