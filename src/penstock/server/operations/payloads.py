"""Operations on external payloads and their storage."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.payloads import storage, transfers
from penstock.server.operation import Operation
from penstock.wire import requests as wire

PAYLOAD_OPERATIONS: Final = (
    Operation(
        "PUT",
        "/api/namespaces/{name}/external-storage",
        "set_namespace_external_storage",
        "Configure the external payload storage of a namespace; one that does not work is refused.",
        Family.NAMESPACE_CHANGES,
        storage.set_policy,
        wire.SetExternalStorage,
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/api/storage/test",
        "test_storage",
        "Write, read back, compare and delete a small and a large object in the namespace's external storage.",
        Family.STORAGE_TESTS,
        storage.test,
        wire.TestStorage,
    ),
    Operation(
        "POST",
        transfers.UPLOAD_PATH,
        "upload_external_payload",
        "Store a payload in external storage; the answer has the reference to send in its place.",
        Family.EXTERNAL_PAYLOADS,
        transfers.upload,
        status=201,
        takes_bytes=True,
        refusals=(409, 413, 422, 503),
    ),
    Operation(
        "GET",
        "/api/external-payloads/v1/{reference_id}",
        "fetch_external_payload",
        "The bytes of an external payload, checked against its size and hash.",
        Family.EXTERNAL_PAYLOADS,
        transfers.fetch,
        media="application/octet-stream",
        refusals=(404, 409, 410, 503),
    ),
)
