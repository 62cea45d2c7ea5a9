"""Who leads: of the members of a group, the one that joined first.

The leader's number is its fencing token: it rises with every change of leader, since leaders follow each other in the
order of joining and numbers are never used again.

At most one member finds `leading` true at any moment, as far as clocks run at the same rate within a fifth (see
`membership.py`).  But a process can be stopped between looking and acting, for any time.  What must not be done by two
leaders must carry the token, and whoever does it must refuse a token below the highest it has seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sarit.client.sync.membership import Membership
    from sarit.client.sync.roster import Member


class LeaderElection:
    """One candidate.  Make one with `await client.coordination.leader_election(...)`."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership

    def __repr__(self) -> str:
        return f"LeaderElection({self.membership!r}, {'leads' if self.leading else 'follows'})"

    @property
    def leader(self) -> Member | None:
        """Who leads, as last seen."""
        return next(iter(self.membership.members), None)

    @property
    def token(self) -> int | None:
        """The fencing token of this candidate's leadership; None while it does not lead."""
        leader = self.leader
        mine = leader is not None and leader.number == self.membership.number
        return leader.number if leader is not None and mine and self.membership.holds else None

    @property
    def leading(self) -> bool:
        """Whether this candidate leads, now.  Turns False in time even when nothing can be reached."""
        return self.token is not None

    async def lead(self) -> int:
        """Wait until this candidate leads; its fencing token.  Raises the failure that ended the candidacy."""
        return await self.membership.until(lambda: self.token)

    async def lost(self, token: int) -> None:
        """Wait until this candidate does not lead under `token` any more.  Raises as `lead` does."""
        membership = self.membership
        await membership.until(
            lambda: True if self.token != token else None, lambda: max(0.0, membership.left_seconds())
        )

    async def resign(self) -> None:
        """Let the next candidate lead; this one goes to the end of the order."""
        await self.membership.rejoin()

    async def close(self) -> None:
        """Give up the candidacy; the next leads at once."""
        await self.membership.close()

    async def __aenter__(self) -> LeaderElection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
