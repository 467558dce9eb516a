"""Coordination where no lock is missing: a server alone with its store, and servers whose database parts them."""

from __future__ import annotations

import pytest

from penstock.coordination.database import DatabaseCoordination
from penstock.ports.coordination import Coordination, InProcess


@pytest.mark.parametrize("coordination", [InProcess(), DatabaseCoordination()], ids=lambda each: each.kind)
async def test_a_lock_is_always_there_and_keeps_nobody_of_this_server_out(coordination: Coordination):
    await coordination.start()
    assert coordination.is_supported
    async with coordination.lock("desk"), coordination.lock("desk"):
        pass
    await coordination.close()


def test_each_says_who_does_it():
    assert (InProcess().kind, DatabaseCoordination().kind) == ("memory", "database")
