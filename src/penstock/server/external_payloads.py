"""External payloads of a request, dealt with between authentication and the operation itself.

1. References that the request mentions are *admitted*: each must have been given out in the caller's namespace, and
   what the server must read itself (the entries of a memo) is fetched.
2. Payloads above the threshold of the namespace's policy are *offloaded*: the bytes are stored, and a reference takes
   their place. A client that knows nothing of external storage, such as curl, thereby gets the same histories as an
   SDK that uploads them itself, and the limits of a request's body stay the only difference.

The operation then sees payloads and references in the same fields as ever. Most requests are smaller than any
threshold and mention no reference; for them this is one search in the body.

Plain JSON that will become a payload (`input`) is never searched: what looks like an envelope inside it is data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.core.external_payloads import (
    ENVELOPE_KEY,
    ExternalReference,
    StoragePolicy,
    envelope,
    read_reference,
)
from penstock.core.model import Blob
from penstock.engine.context import EngineContext
from penstock.engine.payloads import transfers
from penstock.errors import InvalidInput, Reason
from penstock.wire import payloads

_MENTION: Final = ENVELOPE_KEY.encode()
_PLAIN_FIELDS: Final = frozenset({"input", "signal_input"})
"""Fields whose plain JSON is the arguments of something."""
_PAYLOAD_FIELDS: Final = _PLAIN_FIELDS | {
    "arguments",
    "result",
    "result_envelope",
    "payload",
    "entries",
    "details",
    "memo",
    "search_attributes",
}
"""Fields that are searched no further: each is one payload or is not made of payloads."""
_INLINE_COMMANDS: Final = frozenset({"upsert_memo"})
"""Commands whose payloads the server reads."""
_INLINE: Final = frozenset({"send_message"})
"""Operations whose payload becomes part of another one."""


async def prepared(
    ctx: EngineContext,
    namespace: str,
    policy: StoragePolicy | None,
    operation: str,
    document: object,
    raw: bytes,
) -> object:
    """The body of a request, with its references admitted and its large payloads offloaded."""
    if _MENTION in raw:
        found = [
            reference for reference in map(read_reference, _references(document)) if reference is not None
        ]
        await transfers.admit(ctx, namespace, list(dict.fromkeys(found)))
        document = await _inlined(ctx, namespace, document, inlines=operation in _INLINE)
    if policy is None or not policy.enabled or len(raw) <= policy.threshold_bytes or operation in _INLINE:
        return document
    return await _Offload(ctx, namespace, policy.threshold_bytes).of(document)


async def fetched(ctx: EngineContext, namespace: str, reference: ExternalReference) -> Blob:
    """The payload that a reference stands for, as its text."""
    return Blob((await transfers.fetch(ctx, namespace, reference)).decode("ascii", "replace"))


def _references(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        if ENVELOPE_KEY in value:
            yield value[ENVELOPE_KEY]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


async def _inlined(ctx: EngineContext, namespace: str, value: Any, *, inlines: bool) -> Any:
    """A body in which the payloads that the server reads itself are fetched."""
    if isinstance(value, list):
        return [await _inlined(ctx, namespace, each, inlines=inlines) for each in value]
    if not isinstance(value, dict):
        return value
    inlines = inlines or value.get("type") in _INLINE_COMMANDS
    reference = read_reference(value[ENVELOPE_KEY]) if inlines and ENVELOPE_KEY in value else None
    if reference is not None:
        if reference.size_bytes > ctx.settings.limits.payload_bytes_max:
            raise InvalidInput(
                Reason.EXTERNAL_PAYLOAD_OVERSIZED,
                "Memos and messages are read by the server and must fit into a request: "
                f"at most {ctx.settings.limits.payload_bytes_max} bytes.",
                reference_id=reference.reference_id,
            )
        return envelope(await fetched(ctx, namespace, reference))
    return {name: await _inlined(ctx, namespace, each, inlines=inlines) for name, each in value.items()}


class _Offload:
    """Stores the large payloads of one request. Equal ones are stored once."""

    def __init__(self, ctx: EngineContext, namespace: str, threshold: int) -> None:
        self._ctx, self._namespace, self._threshold = ctx, namespace, threshold
        self._stored: dict[Blob, ExternalReference] = {}

    async def of(self, value: Any) -> Any:
        """A copy of a body with references in place of its large payloads."""
        if isinstance(value, list):
            return [await self.of(each) for each in value]
        if not isinstance(value, dict):
            return value
        if value.get("type") in _INLINE_COMMANDS:
            return value
        return {
            name: await (self._payload(name, each) if name in _PAYLOAD_FIELDS else self.of(each))
            for name, each in value.items()
        }

    async def _payload(self, name: str, value: Any) -> Any:
        blob = _large_blob(name, value, self._threshold)
        if blob is None:
            return value
        reference = self._stored.get(blob)
        if reference is None:
            reference = await transfers.upload(self._ctx, self._namespace, blob.encode("ascii"))
            self._stored[blob] = reference
        return envelope(reference.blob)


def _large_blob(name: str, value: Any, threshold: int) -> Blob | None:
    """The encoded payload of a field, if there is one above a threshold."""
    given: Any = None
    if isinstance(value, dict) and value.keys() == {"codec", "blob"}:
        given = value["blob"]
    elif isinstance(value, str):
        given = value
    elif name in _PLAIN_FIELDS and isinstance(value, list | dict) and "codec" not in value:
        given = payloads.parse(value, name).blob
    if not isinstance(given, str) or len(given) <= threshold or not payloads.is_blob(given):
        return None
    return Blob(given)
