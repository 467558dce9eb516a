"""Coordination by the database itself."""

from __future__ import annotations

from penstock.ports.coordination import InProcess


class DatabaseCoordination(InProcess):
    """Takes no locks of its own: row locks of the database already serialize servers.

    It is supported as long as the store is; an outage is reported by the store itself.
    """

    kind = "database"
