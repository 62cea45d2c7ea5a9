"""The web console: a page of the node's HTTP port, and the JSON that it asks for under /console/api.

    browser ── GET / ─▶ assets/ (HTML, CSS and modules as they are in the wheel)
            ── GET /console/api/… ─▶ JSON                         ┐
            ── GET /console/api/…/live ─▶ server-sent events      ├─▶ client (asyncio) ─▶ controller, stores
            ── POST, PATCH, DELETE, with the token of /session ─▶ ┘─▶ NodeView, what the node knows of itself

`guard.py` decides who may ask.  `routes.py` has the table of paths.
"""

from __future__ import annotations

from sarit.admin.console.routes import Console

__all__ = ["Console"]
