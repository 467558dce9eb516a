"""The server: what it is, whether it is well, and what it keeps for how long."""

from __future__ import annotations

from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.view import View


async def load(view: View) -> Values:
    (info, namespace), (health, hidden), (metrics, _) = await gather(
        gather(view.read("cluster_info"), view.read("describe_namespace", name=view.namespace)),
        view.try_read("read_system_health"),
        view.try_read("read_operator_metrics"),
    )
    return {
        "info": info,
        "health": health,
        "hidden_error": hidden,
        "metrics": None if metrics is None else metrics["operator_metrics"],
        "about": namespace,
        "store": view.server.ctx.settings.store.kind.value,
        "coordination": view.server.ctx.settings.coordination.kind.value,
        "auth": view.server.ctx.settings.auth.driver.value,
        "journal": view.server.ctx.settings.journal,
        "structural": info["structural_limits"],
    }
