"""Uploading and fetching external payloads, with the headers and bodies of the public contract."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.external_payloads import (
    CODEC,
    REFERENCE_SCHEMA,
    ExternalReference,
    StoragePolicy,
    is_reference_id,
)
from penstock.engine.payloads import transfers
from penstock.engine.payloads.transfers import STORAGE_TIMEOUT_S
from penstock.errors import InvalidInput, Reason
from penstock.server.operation import OperationCall, Response
from penstock.settings import Settings
from penstock.wire import payloads

UPLOAD_PATH: Final = "/api/external-payloads/v1"
FETCH_PATH: Final = "/api/external-payloads/v1/{referenceId}"
_UPLOAD_SCHEMA: Final = "durable-workflow.v2.runtime-external-payload-upload.v1"
_TRANSPORT_SCHEMA: Final = "durable-workflow.v2.runtime-external-payload-transport.v1"
_CODEC_HEADER: Final = "X-Durable-Workflow-Payload-Codec"
_SIZE_HEADER: Final = "X-Durable-Workflow-Payload-Size"
_HASH_HEADER: Final = "X-Durable-Workflow-Payload-SHA256"


def discovery(policy: StoragePolicy | None, settings: Settings, *, works: bool) -> dict[str, Any] | None:
    """What a client must know to upload and fetch; None while payloads stay inline."""
    if policy is None or not policy.enabled:
        return None
    return {
        "driver": policy.driver,
        "enabled": True,
        "status": "available" if works else "unavailable",
        "threshold_bytes": policy.threshold_bytes,
        "direct_provider_adapters": {"capability_negotiated": True, "enabled": False},
        "transport": {
            "schema": _TRANSPORT_SCHEMA,
            "version": 1,
            "mode": "authenticated_namespace_runtime",
            "reference_schema": REFERENCE_SCHEMA,
            "upload": {"method": "POST", "path": UPLOAD_PATH},
            "fetch": {"method": "GET", "path_template": FETCH_PATH},
            "limits": {
                "max_payload_bytes": max(settings.external_storage.payload_bytes_max, policy.threshold_bytes),
                "request_timeout_seconds": 2 * STORAGE_TIMEOUT_S,
            },
        },
    }


async def upload(call: OperationCall) -> Response:
    headers, data = call.headers, call.raw
    codec = headers.get(_CODEC_HEADER.lower())
    if codec != CODEC:
        raise InvalidInput(
            Reason.EXTERNAL_PAYLOAD_UNSUPPORTED,
            f'The header {_CODEC_HEADER} must be "{CODEC}", the only codec this server accepts.',
        )
    size = headers.get(_SIZE_HEADER.lower(), "")
    digest = headers.get(_HASH_HEADER.lower(), "")
    if not size.isdecimal() or len(size) > 15 or len(digest) != 64:
        raise InvalidInput(
            Reason.EXTERNAL_PAYLOAD_UNSUPPORTED,
            f"The headers {_SIZE_HEADER} and {_HASH_HEADER} must say the size and the SHA-256 of the body.",
        )
    transfers.check_bytes(data, ExternalReference("", digest, int(size)))
    if not payloads.is_blob(data.decode("latin-1")):
        raise InvalidInput(
            Reason.EXTERNAL_PAYLOAD_UNSUPPORTED,
            "The body must be a payload as it stands in the blob of an envelope: base64 of an Avro value.",
        )
    reference = await transfers.upload(call.ctx, call.namespace, data)
    return Response({"schema": _UPLOAD_SCHEMA, "transport_version": 1, "reference": reference.fields}, 201)


async def fetch(call: OperationCall) -> Response:
    name = call.path["reference_id"]
    if not is_reference_id(name):
        raise transfers.not_found(call.namespace, name[:64])
    payload = await transfers.find(call.ctx, call.namespace, name)
    data = await transfers.read(call.ctx, payload)
    return Response(
        data,
        headers={
            "Content-Type": "application/octet-stream",
            _CODEC_HEADER: CODEC,
            _SIZE_HEADER: str(payload.size_bytes),
            _HASH_HEADER: payload.sha256,
        },
    )
