"""What a server is given to coordinate with, and what it says when it cannot be had."""

from __future__ import annotations

import sys

import pytest

from penstock.assembly import assembled
from penstock.errors import ConfigurationError
from penstock.settings import load

REDIS = {
    "DW_AUTH_DRIVER": "none",
    "DW_DATABASE_URL": "memory://",
    "DW_COORDINATION": "redis",
    "DW_REDIS_URL": "redis://127.0.0.1:1/0",
}


async def test_redis_without_its_client_is_refused_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    for module in ("redis", "redis.asyncio"):
        monkeypatch.setitem(sys.modules, module, None)
    for room in ("penstock.coordination.redis_locks", "penstock.wakeups.redis"):
        monkeypatch.delitem(sys.modules, room, raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[redis\]'"):
        async with assembled(load(REDIS)):
            pass


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({"DW_COORDINATION": "memory"}, "memory"), ({"DW_COORDINATION": "database"}, "database"), ({}, "redis")],
)
async def test_a_server_coordinates_as_its_settings_say(changes: dict[str, str], kind: str):
    environ = REDIS | changes
    if kind != "redis":
        del environ["DW_REDIS_URL"]
    async with assembled(load(environ)) as server:
        assert server.ctx.coordination.kind == kind
        assert server.ctx.coordination.is_supported == (kind != "redis"), "nobody listens at port 1"
