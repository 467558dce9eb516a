"""The storage policy of a namespace: setting it, and testing that its storage works."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.core.external_payloads import StoragePolicy, read_policy
from penstock.engine.operations import namespaces
from penstock.engine.payloads import storage_test
from penstock.engine.payloads.policy import active_policy
from penstock.engine.payloads.storage_test import LARGE_BYTES, SMALL_BYTES, RoundTrip
from penstock.errors import InvalidInput, PenstockError, Reason
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire import responses
from penstock.wire.requests import SetExternalStorage, TestStorage


async def set_policy(call: OperationCall) -> Response:
    """Set a policy. One that is turned on is tested first, and is not stored unless its storage works."""
    request: SetExternalStorage = call.body
    name = text_path(call, "name", 128).lower()
    stored = {key: value for key, value in msgspec.to_builtins(request).items() if value is not None}
    if "config" in stored:
        stored["config"] = {key: value for key, value in stored["config"].items() if value is not None}
    policy = read_policy(stored)
    assert policy is not None
    await namespaces.describe(call.ctx, name)
    if policy.enabled:
        _check_threshold(call, policy)
        await storage_test.check(call.ctx, name, policy, SMALL_BYTES)
    changed = await namespaces.store_payloads(call.ctx, name, json.dumps(stored))
    return Response(responses.namespace(changed))


async def test(call: OperationCall) -> Response:
    """Write, read back and delete a small and a large object."""
    request: TestStorage = call.body
    sizes = (request.small_payload_bytes or SMALL_BYTES, request.large_payload_bytes or LARGE_BYTES)
    try:
        policy = await active_policy(call.ctx, call.namespace)
        if request.driver is not None and request.driver != policy.driver:
            raise InvalidInput(
                Reason.STORAGE_DRIVER_UNAVAILABLE,
                f"The policy of {call.namespace!r} names the driver {policy.driver!r}, not {request.driver!r}.",
            )
        small, large = await storage_test.check(call.ctx, call.namespace, policy, *sizes)
    except InvalidInput as error:
        raise _failed(error, call.namespace, request.driver) from error
    return Response(
        {
            "status": "passed",
            "namespace": call.namespace,
            "driver": policy.driver,
            "small_payload": _shown(small),
            "large_payload": _shown(large),
        }
    )


def _check_threshold(call: OperationCall, policy: StoragePolicy) -> None:
    largest = call.ctx.settings.external_storage.payload_bytes_max
    if policy.threshold_bytes > largest:
        raise InvalidInput(
            Reason.STORAGE_DRIVER_UNAVAILABLE,
            f"threshold_bytes is above DW_EXTERNAL_PAYLOAD_BYTES_MAX ({largest}), so nothing would be offloaded.",
            driver=policy.driver,
        )


def _failed(error: InvalidInput, namespace: str, driver: str | None) -> PenstockError:
    details: dict[str, Any] = {"driver": driver, **error.details, "namespace": namespace, "status": "failed"}
    return InvalidInput(error.reason, error.message, **details)


def _shown(trip: RoundTrip) -> dict[str, Any]:
    return {"status": "passed", "bytes": trip.size_bytes, "sha256": trip.sha256, "reference_uri": trip.uri}
