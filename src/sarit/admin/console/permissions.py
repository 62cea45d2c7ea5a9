"""What a caller may change: a page shows no button whose call would be refused.

It reads the rules by which the controller in this process decides.  So nothing is tried, and the audit log has no
refusal of something that nobody asked for.  The controller decides all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.security.permissions import (
    ROOT,
    group_resource,
    owner_resource,
    scope_resource,
    stream_resource,
    table_resource,
)

if TYPE_CHECKING:
    from sarit.admin.console.view import NodeView
    from sarit.core.names import StreamName
    from sarit.security.permissions import Caller


class Rights:
    """The rights of one caller; `caller`: None where nobody logs in."""

    def __init__(self, node: NodeView, caller: Caller | None) -> None:
        self._node = node
        self._caller = caller

    def __repr__(self) -> str:
        return f"<Rights of {self._caller}>"

    def changes_everything(self) -> bool:
        """Return whether the caller may create scopes of any name, and see quotas."""
        return self._may(ROOT)

    def creates_in(self, scope: str) -> bool:
        """Return whether the caller may create streams of any name in a scope."""
        # A rule on a prefix allows any name, so check one as an example.
        return self._may(scope_resource(scope), stream_resource(scope, "0"))

    def changes_stream(self, name: StreamName) -> bool:
        """Return whether the caller may change a stream."""
        return self._may(owner_resource(name.scope, name.stream))

    def changes_table(self, name: StreamName) -> bool:
        """Return whether the caller may change a table."""
        return self._may(table_resource(name.scope, name.stream))

    def deletes_group(self, name: StreamName) -> bool:
        """Return whether the caller may delete a reader group, whoever created it."""
        return self._may(scope_resource(name.scope), group_resource(name.scope, name.stream))

    def _may(self, *resources: str) -> bool:
        return self._caller is None or self._node.may_change(self._caller, *resources)
