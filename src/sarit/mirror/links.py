"""Links: what an administrator chose for a mirror, and how far it is.

A link is a row of the table `_system/_tables/links`, and an internal stream `_system/_link-NAME` with one background
job of the kind `link` (`controller/jobs.py`), which copies.  The job's state is a `LinkStatus`.  An installation that
only receives has a row of the role PASSIVE, made when a link first writes into it: it can be listed and promoted there.
"""

from __future__ import annotations

from sarit.core.links import HoldOverflow as Overflow
from sarit.core.links import Link, LinkSettings, LinkState, LinkStatus, StreamProblem
from sarit.core.links import LinkDirection as Direction
from sarit.core.links import LinkRole as Role

__all__ = ["Direction", "Link", "LinkSettings", "LinkState", "LinkStatus", "Overflow", "Role", "StreamProblem"]
