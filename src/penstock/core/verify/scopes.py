"""Which scopes a task is in, and whose they are, by their names."""

from __future__ import annotations

from functools import lru_cache

from penstock.core.limits.admission import EVERYWHERE, cluster_scope, namespace_scope, queue_scope


@lru_cache(maxsize=4096)
def own_scopes(namespace: str, task_queue: str, kind: str) -> tuple[str, ...]:
    """The scopes that every task of a line is in, whatever budget group its queue names."""
    return (
        queue_scope(namespace, task_queue, kind),
        namespace_scope(namespace, kind),
        namespace_scope(namespace),
        cluster_scope(kind),
        cluster_scope(),
    )


def namespace_of(scope: str) -> str | None:
    """The namespace that a scope belongs to; None: to all of them."""
    _, _, name = scope.partition(":")
    namespace = name.partition("/")[0]
    return None if namespace in ("", EVERYWHERE) else namespace
