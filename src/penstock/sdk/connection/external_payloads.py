"""A transport that keeps large payloads out of requests and responses.

A namespace may have a policy: encoded payloads above a threshold are kept in external storage. The server tells it to
every client that connects. This transport stands between client or worker and the connection, and neither knows of it:

- Outgoing bodies: an envelope whose blob is above the threshold is uploaded, and a reference takes its place. That
  happens before the size of the request matters, so a payload may be far larger than a request.
- Incoming bodies: the bytes of each reference are fetched, compared with their size and SHA-256, and put in its place.
  Those of recently used references are cached, up to `CACHE_BYTES_MAX`.

A payload that cannot be fetched leaves its reference in place, with the error beside it. Whoever decodes it gets the
error (`ExternalPayloadError`), whoever does not need it is not disturbed; a worker finds it in the task
(`PAYLOAD_ERROR`) and fails the attempt with its reason, so that the task is retried and the cause is shown.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Unpack

import msgspec

from penstock.core.external_payloads import (
    CODEC,
    ENVELOPE_KEY,
    ExternalReference,
    envelope,
    read_reference,
)
from penstock.core.model import Blob
from penstock.errors import Reason
from penstock.sdk.connection.transport import (
    CONTROL_PLANE,
    WORKER_PLANE,
    ControlOptions,
    Json,
    PayloadAnswer,
    Transport,
    WorkOptions,
    route,
)
from penstock.sdk.converters import PayloadTooLarge
from penstock.sdk.converters.data_converter import FETCH_ERROR, PAYLOAD_BYTES_MAX
from penstock.sdk.failures import ServerRefused, Unreachable

PAYLOAD_ERROR: Final = "payload_error"
"""The key under which a polled task has the reason and message of a payload that could not be fetched."""
CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
FETCHES_AT_ONCE: Final = 4
LEARN_FROM_BYTES: Final = 65_536
"""A client that connected lazily asks for the policy before it sends a payload larger than this."""
EXTERNAL_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Largest payload that any policy allows."""
_HASHED_HERE_MAX: Final = 1024 * 1024
"""Bytes that are hashed on the event loop; more are hashed in a thread."""
_PATH: Final = "/external-payloads/v1"
_CODEC_HEADER: Final = "X-Durable-Workflow-Payload-Codec"
_SIZE_HEADER: Final = "X-Durable-Workflow-Payload-Size"
_HASH_HEADER: Final = "X-Durable-Workflow-Payload-SHA256"


class ByteTransport(Transport, Protocol):
    """A transport that also carries bytes. Its JSON answers are `PayloadAnswer` if they mention a reference."""

    async def transfer(
        self,
        method: str,
        path: str,
        plane: tuple[str, str],
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> bytes:
        """Send bytes and return the bytes of the answer. Raises `ServerRefused` or `Unreachable`."""


class PayloadPolicy:
    """What a server said about external payloads of the namespace."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        namespace = info.get("namespace")
        found = namespace.get("external_payload_storage") if isinstance(namespace, Mapping) else None
        stored = found if isinstance(found, Mapping) and isinstance(found.get("transport"), Mapping) else None
        self.threshold: int | None = None if stored is None else int(stored["threshold_bytes"])
        """Bytes of an encoded payload above which it is uploaded; None: none is."""
        self.bytes_max: int = 0 if stored is None else int(stored["transport"]["limits"]["max_payload_bytes"])
        """Largest payload that may be uploaded."""


class PayloadTransport:
    """Uploads large payloads and fetches referenced ones, around another transport.

    Args:
        inner: sends the requests.
        inline_bytes_max: largest payload that is sent without a policy.
        cache_bytes_max: bytes of fetched and uploaded payloads that are kept.
    """

    def __init__(
        self,
        inner: ByteTransport,
        *,
        inline_bytes_max: int = PAYLOAD_BYTES_MAX,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self.inner = inner
        self.policy: PayloadPolicy | None = None
        """None: the server was not asked yet."""
        self._inline_bytes_max = inline_bytes_max
        self._cache = _Cache(cache_bytes_max)
        self._room = asyncio.Semaphore(FETCHES_AT_ONCE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    def learn(self, info: Mapping[str, Any]) -> PayloadPolicy:
        """Take the policy of the namespace from the information of the server."""
        self.policy = PayloadPolicy(info)
        return self.policy

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        sent = body if body is None else await self.offloaded(body, CONTROL_PLANE)
        return await self._resolved(await self.inner.control(method, path, sent, **options), CONTROL_PLANE)

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        sent = body if path.endswith(("/poll", "/batch")) else await self.offloaded(body, WORKER_PLANE)
        return await self._resolved(await self.inner.work(path, sent, **options), WORKER_PLANE)

    async def close(self) -> None:
        await self.inner.close()

    # Outgoing

    async def offloaded(self, body: Json, plane: tuple[str, str] = WORKER_PLANE) -> Json:
        """Return a body with its large payloads uploaded. Raises `ServerRefused` or `Unreachable`."""
        if self.policy is None:
            if not any(_blobs(body, LEARN_FROM_BYTES)):
                return body
            await self._ask(plane)
        policy = self.policy
        if policy is None or policy.threshold is None:
            too_large = next(_blobs(body, self._inline_bytes_max), None)
            if too_large is not None and plane is CONTROL_PLANE:
                raise PayloadTooLarge("a payload of this request", len(too_large), self._inline_bytes_max)
            return body
        large = dict.fromkeys(_blobs(body, policy.threshold))
        if not large:
            return body
        uploaded = {blob: await self._upload(blob, plane) for blob in large}
        replaced: Json = _replaced(body, uploaded)
        return replaced

    async def _ask(self, plane: tuple[str, str]) -> None:
        """Ask the server for the policy: this client has sent nothing large yet and was not connected at once."""
        path = route("cluster", "info")
        if plane is WORKER_PLANE:
            info = await self.inner.work(path, {}, idempotent=True, method="GET")
        else:
            info = await self.inner.control("GET", path, idempotent=True)
        self.learn(info)

    async def _upload(self, blob: str, plane: tuple[str, str]) -> ExternalReference:
        data = blob.encode("ascii")
        digest = await _sha256(data)
        headers = {_CODEC_HEADER: CODEC, _SIZE_HEADER: str(len(data)), _HASH_HEADER: digest}
        async with self._room:
            answer = await self.inner.transfer("POST", _PATH, plane, data, headers)
        reference = _uploaded(answer)
        if reference is None or (reference.sha256, reference.size_bytes) != (digest, len(data)):
            raise Unreachable("The server answered an upload with a reference to something else")
        self._cache.put(reference, blob)
        return reference

    # Incoming

    async def _resolved(self, answer: Json, plane: tuple[str, str]) -> Json:
        """The answer with the payloads of its references in place. Few answers have any."""
        if not isinstance(answer, PayloadAnswer):
            return answer
        holders = list(_holders(answer))
        wanted = {each: None for _, each in holders}
        found = dict(
            zip(wanted, await asyncio.gather(*(self._fetched(each, plane) for each in wanted)), strict=True)
        )
        for holder, reference in holders:
            blob = found[reference]
            if isinstance(blob, str):
                holder.pop(ENVELOPE_KEY)
                holder["blob"] = blob
            else:
                holder[FETCH_ERROR] = blob
        _mark_tasks(answer)
        return dict(answer)

    async def _fetched(self, reference: ExternalReference, plane: tuple[str, str]) -> str | Json:
        """The blob of a reference, or why there is none."""
        cached = self._cache.get(reference)
        if cached is not None:
            return cached
        path = _PATH + route(reference.reference_id)
        try:
            async with self._room:
                data = await self.inner.transfer("GET", path, plane, None, {})
        except ServerRefused as error:
            return {"reason": str(error.reason), "message": error.message}
        except Unreachable as error:
            return {"reason": Reason.EXTERNAL_PAYLOAD_UNAVAILABLE.value, "message": str(error)}
        if len(data) != reference.size_bytes or await _sha256(data) != reference.sha256:
            text = f"The bytes of {reference.reference_id} do not have the size and hash of their reference"
            return {"reason": Reason.EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH.value, "message": text}
        blob = data.decode("ascii", "replace")
        self._cache.put(reference, blob)
        return blob


class _Cache:
    """Blobs by reference, the least recently used dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._size = bytes_max, 0
        self._blobs: OrderedDict[ExternalReference, str] = OrderedDict()

    def get(self, reference: ExternalReference) -> str | None:
        blob = self._blobs.get(reference)
        if blob is not None:
            self._blobs.move_to_end(reference)
        return blob

    def put(self, reference: ExternalReference, blob: str) -> None:
        if len(blob) > self._bytes_max or reference in self._blobs:
            return
        self._blobs[reference] = blob
        self._size += len(blob)
        while self._size > self._bytes_max:
            self._size -= len(self._blobs.popitem(last=False)[1])


async def _sha256(data: bytes) -> str:
    if len(data) <= _HASHED_HERE_MAX:
        return hashlib.sha256(data).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()


def _blobs(value: Any, above: int) -> Iterator[str]:
    """The blobs in a body that are larger than a number of bytes."""
    if isinstance(value, dict):
        blob = value.get("blob")
        if isinstance(blob, str) and value.keys() == {"codec", "blob"}:
            if len(blob) > above:
                yield blob
            return
        value = value.values()
    elif not isinstance(value, list):
        return
    for each in value:
        if isinstance(each, dict | list):
            yield from _blobs(each, above)


def _uploaded(answer: bytes) -> ExternalReference | None:
    try:
        return read_reference(msgspec.json.decode(answer).get("reference"))
    except (msgspec.DecodeError, AttributeError):
        return None


def _replaced(value: Any, uploaded: Mapping[str, ExternalReference]) -> Any:
    if isinstance(value, list):
        return [_replaced(each, uploaded) for each in value]
    if not isinstance(value, dict):
        return value
    blob = value.get("blob")
    if isinstance(blob, str) and blob in uploaded and value.keys() == {"codec", "blob"}:
        return envelope(Blob(uploaded[blob].blob))
    return {name: _replaced(each, uploaded) for name, each in value.items()}


def _holders(value: Any) -> Iterator[tuple[Json, ExternalReference]]:
    """The envelopes in an answer that hold a reference."""
    if isinstance(value, dict):
        reference = read_reference(value[ENVELOPE_KEY]) if value.keys() == {"codec", ENVELOPE_KEY} else None
        if reference is not None:
            yield value, reference
            return
        for each in value.values():
            yield from _holders(each)
    elif isinstance(value, list):
        for each in value:
            yield from _holders(each)


def _mark_tasks(answer: Json) -> None:
    """Put the first error of each polled task where its worker looks."""
    tasks: Sequence[Any] = answer.get("tasks") or []
    for task in tasks:
        error = next(_errors(task), None)
        if error is not None and isinstance(task, dict):
            task[PAYLOAD_ERROR] = error


def _errors(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if FETCH_ERROR in value and ENVELOPE_KEY in value:
            yield value[FETCH_ERROR]
            return
        for each in value.values():
            yield from _errors(each)
    elif isinstance(value, list):
        for each in value:
            yield from _errors(each)
