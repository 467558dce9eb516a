"""The scopes of a task, and the namespace of a scope, by name."""

from __future__ import annotations

from functools import lru_cache

from penstock.core.limits.admission import EVERYWHERE, cluster_scope, namespace_scope, queue_scope


@lru_cache(maxsize=4096)
def own_scopes(namespace: str, task_queue: str, kind: str) -> tuple[str, ...]:
    """The scopes of every task of a queue, apart from budget groups."""
    return (
        queue_scope(namespace, task_queue, kind),
        namespace_scope(namespace, kind),
        namespace_scope(namespace),
        cluster_scope(kind),
        cluster_scope(),
    )


def namespace_of(scope: str) -> str | None:
    """The namespace of a scope; None: all namespaces."""
    _, _, name = scope.partition(":")
    namespace = name.partition("/")[0]
    return None if namespace in ("", EVERYWHERE) else namespace
