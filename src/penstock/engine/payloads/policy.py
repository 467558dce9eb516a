"""The external storage policy of a namespace, and the storage that it names."""

from __future__ import annotations

from penstock.core import json_text
from penstock.core.external_payloads import StoragePolicy, read_policy
from penstock.core.model import Namespace
from penstock.engine.context import EngineContext
from penstock.errors import InvalidInput, Reason
from penstock.ports.objects import ObjectStorage


def policy_of(namespace: Namespace | None) -> StoragePolicy | None:
    """The policy, also one that is turned off; None if there is none."""
    if namespace is None or not namespace.external_storage:
        return None
    return read_policy(json_text.read(namespace.external_storage))


def place_of(policy: StoragePolicy) -> str:
    """Where objects are kept, as it is stored with each of them."""
    return json_text.written({"driver": policy.driver, "config": dict(policy.config)})


async def active_policy(ctx: EngineContext, namespace: str) -> StoragePolicy:
    """The policy of a namespace; raises `InvalidInput` if there is none, or if it is turned off."""
    policy = policy_of(await ctx.store.read(lambda tx: tx.namespaces.get(namespace)))
    if policy is None:
        raise InvalidInput(
            Reason.EXTERNAL_STORAGE_NOT_CONFIGURED,
            f"The namespace {namespace!r} has no external payload storage.",
            namespace=namespace,
            remediation="Configure it: penstock namespace storage NAME --driver local|s3",
        )
    if not policy.enabled:
        raise InvalidInput(
            Reason.EXTERNAL_STORAGE_DISABLED,
            f"The external payload storage of {namespace!r} is turned off.",
            namespace=namespace,
            driver=policy.driver,
            remediation="Turn it on: penstock namespace storage NAME --enable",
        )
    return policy


def can_open(ctx: EngineContext, policy: StoragePolicy) -> bool:
    """Whether this server may use the storage of a policy; whether the storage works shows only its use."""
    try:
        storage_at(ctx, place_of(policy))
    except InvalidInput:
        return False
    return True


def storage_at(ctx: EngineContext, place: str) -> ObjectStorage:
    """The storage at a place; raises `InvalidInput` (`storage_driver_unavailable`) if this server may not use it."""
    return ctx.drivers.open(place)
