"""Probes of load balancers, orchestrators and Prometheus, which address a server by its IP."""

from __future__ import annotations

import pytest

from penstock import assembly
from penstock.settings import load
from tests.server.client import Client
from tests.support import live


@pytest.mark.parametrize("target", ["/api/health", "/api/ready", "/metrics"])
async def test_a_server_beyond_loopback_answers_probes_that_name_it_by_its_address(target: str) -> None:
    """Kubernetes and proxies got 421 from servers that had `DW_ALLOWED_HOSTS`, and took them out of service."""
    strong = {name: f"{name}-3q8vBz1Tn5Lk7Xw2Rj4Hs9Pd6" for name in live.TOKENS}
    settings = load(
        strong
        | {
            "DW_DATABASE_URL": "memory://",
            "DW_HOST": "0.0.0.0",
            "DW_ALLOWED_HOSTS": "penstock.example.com",
            "DW_TRUSTED_PROXIES": "10.0.0.2",
        }
    )
    async with assembly.assembled(settings) as server:
        client = Client(server.application)
        assert (await client.get(target, headers={"Host": "10.4.0.17:8080"})).status == 200
        other = await client.get("/api/workflows", headers={"Host": "10.4.0.17:8080"})
        other.refused(421, "misdirected_host")
