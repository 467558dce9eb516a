"""External payloads: what stands in a history for bytes that are kept elsewhere.

Theory of operation
-------------------
A payload above the threshold of its namespace's policy is an *object* in external storage; histories and rows hold a
*reference* to it. A reference is opaque: an id that the server gave out when it took the bytes, their size and their
SHA-256. It has no address, so a client can neither choose where the server reads nor reach another namespace's bytes.

Inside the server a payload is one text (`Blob`): either the base64 of an encoded value, or `ep_….SHA256.SIZE`. The
first begins with `wwHi`, so the two cannot be confused. On the wire, and in recorded events, a reference is an object
under the key `external_payload`.

An object lives as follows (`PayloadState`):

    uploading --> available --> deleting --> gone

1. Its row is inserted as `uploading` before the first byte is written, with a time at which it is looked at again.
2. It becomes `available` when the object is durable. Only then is its reference given out.
3. Every transaction that writes a reference for an owner (a run, a schedule) also inserts a *use*. Uses are deleted
   with the rows of their owner.
4. At the row's time, `collection` decides: in use, it is left alone until a use of it is deleted; unused, it becomes
   `deleting`, and the row is deleted after the object.

So an object is never deleted before the rows that point to it, and one that no row ever pointed to, because an upload
or a start failed, is deleted after the grace. A server may die between any two steps: the row remains, and names what
is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from penstock.core.model import Blob

CODEC: Final = "avro"
REFERENCE_SCHEMA: Final = "durable-workflow.v2.runtime-external-payload-reference.v1"
THRESHOLD_DEFAULT: Final = 131_072
"""Bytes of an encoded payload above which it is kept outside, where the policy does not say."""
LAST_USE_MARGIN_MS: Final = 600_000
"""How long an object outlives its last use: longer than a request between the check of a reference and its commit, also
on a server that is frozen for a while."""
FAILED_WRITE_MARGIN_MS: Final = 60_000
"""How long after a failed write an object is deleted: a write that timed out may still take effect."""
ENVELOPE_KEY: Final = "external_payload"
MARK: Final = "ep_"
_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ID_LENGTH: Final = 26
_REFERENCE_KEYS: Final = {"schema", "reference_id", "codec", "size_bytes", "sha256"}
_PAYLOAD_FIELDS: Final = ("arguments", "result", "output")
"""The fields of events that hold a payload."""


class PayloadState(StrEnum):
    """Where an object is in its life."""

    UPLOADING = "uploading"
    AVAILABLE = "available"
    DELETING = "deleting"


class ExternalReference(Struct, frozen=True):
    """Stands for the bytes of one payload in external storage."""

    reference_id: str
    sha256: str
    size_bytes: int

    @property
    def blob(self) -> Blob:
        """The text that rows hold in place of the payload."""
        return Blob(f"{self.reference_id}.{self.sha256}.{self.size_bytes}")

    @property
    def fields(self) -> dict[str, str | int]:
        """The reference as clients send and receive it."""
        return {
            "schema": REFERENCE_SCHEMA,
            "reference_id": self.reference_id,
            "codec": CODEC,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }


class StoragePolicy(Struct, frozen=True):
    """A namespace's policy: whether payloads above a threshold are kept outside, and where."""

    driver: str
    enabled: bool = True
    threshold_bytes: int = THRESHOLD_DEFAULT
    config: Mapping[str, str] = {}


class ExternalPayload(Struct, frozen=True):
    """The row of an object."""

    reference_id: str
    namespace: str
    place: str
    """Driver and configuration at the time of the upload, as JSON: a change of the policy moves no objects."""
    sha256: str
    size_bytes: int
    state: PayloadState
    created_at_ms: int
    check_at_ms: int | None
    """When it is decided whether it is still needed; None: when one of its uses is deleted."""

    @property
    def reference(self) -> ExternalReference:
        return ExternalReference(self.reference_id, self.sha256, self.size_bytes)

    @property
    def key(self) -> str:
        return object_key(self.namespace, self.reference_id)


class Collection(StrEnum):
    """What is done with an object whose time has come."""

    WAIT = "wait"
    KEEP = "keep"
    DELETE = "delete"


def collection(payload: ExternalPayload, now_ms: int, *, used: bool) -> Collection:
    """Decide whether an object is still needed. An object that is being deleted stays so, whatever uses it has."""
    if payload.check_at_ms is None or payload.check_at_ms > now_ms:
        return Collection.WAIT
    if payload.state is PayloadState.DELETING:
        return Collection.DELETE
    return Collection.KEEP if used else Collection.DELETE


def reference_id(unique: int) -> str:
    """The reference id made of a unique number of at most 128 bits."""
    digits = []
    for _ in range(_ID_LENGTH):
        unique, digit = divmod(unique, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return MARK + "".join(reversed(digits))


def is_reference_id(text: str) -> bool:
    digits = text.removeprefix(MARK)
    return text.startswith(MARK) and len(digits) == _ID_LENGTH and all(each in _DIGITS for each in digits)


def object_key(namespace: str, reference: str) -> str:
    """The name of an object in its place: two levels of folders, so that none of them grows without bound."""
    folder = f"%2E{namespace[1:]}" if namespace.startswith(".") else namespace
    return f"{folder}/{reference[-2:]}/{reference}"


def reference_of(blob: str) -> ExternalReference | None:
    """The reference that a payload's text is; None if the text is the payload itself."""
    if not blob.startswith(MARK):
        return None
    name, _, rest = blob.partition(".")
    digest, _, size = rest.partition(".")
    if not is_reference_id(name) or not _is_sha256(digest) or not size.isdecimal():
        return None
    return ExternalReference(name, digest, int(size))


def content_of(blob: str) -> str:
    """What identifies a payload's content: two uploads of the same bytes have different references."""
    reference = reference_of(blob)
    return blob if reference is None else f"{reference.sha256}.{reference.size_bytes}"


def read_reference(value: object) -> ExternalReference | None:
    """The reference in an envelope's `external_payload`; None if it is malformed."""
    if not isinstance(value, Mapping) or value.keys() != _REFERENCE_KEYS:
        return None
    name, digest, size = value["reference_id"], value["sha256"], value["size_bytes"]
    if value["schema"] != REFERENCE_SCHEMA or value["codec"] != CODEC:
        return None
    if not isinstance(name, str) or not isinstance(digest, str) or type(size) is not int:
        return None
    if not is_reference_id(name) or not _is_sha256(digest) or not 0 <= size < 2**53:
        return None
    return ExternalReference(name, digest, size)


def envelope(blob: Blob) -> dict[str, Any]:
    """A payload's envelope: with the payload, or with the reference to it."""
    reference = reference_of(blob) if blob.startswith(MARK) else None
    if reference is None:
        return {"codec": CODEC, "blob": blob}
    return {"codec": CODEC, ENVELOPE_KEY: reference.fields}


def recorded(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an event as they are recorded: references as envelopes, so that readers recognise them."""
    changed: dict[str, Any] = {}
    for name in _PAYLOAD_FIELDS:
        value = payload.get(name)
        if isinstance(value, str) and value.startswith(MARK) and reference_of(value) is not None:
            changed[name] = envelope(Blob(value))
    return {**payload, **changed} if changed else payload


def blob_of(value: Any) -> Blob:
    """The payload's text of a field of a recorded event: the inverse of `recorded`."""
    if isinstance(value, Mapping):
        reference = read_reference(value.get(ENVELOPE_KEY))
        assert reference is not None, "events hold whole references"
        return reference.blob
    return Blob(value)


def read_policy(decoded: Mapping[str, Any] | None) -> StoragePolicy | None:
    """A namespace's policy from its stored form; None if it has none."""
    if decoded is None:
        return None
    return StoragePolicy(
        driver=decoded["driver"],
        enabled=bool(decoded.get("enabled", True)),
        threshold_bytes=decoded.get("threshold_bytes") or THRESHOLD_DEFAULT,
        config=decoded.get("config") or {},
    )


def references_in(text: str) -> list[str]:
    """The ids of all references that a text mentions, each once."""
    found: dict[str, None] = {}
    at = text.find(MARK)
    while at >= 0:
        name = text[at : at + len(MARK) + _ID_LENGTH]
        if is_reference_id(name):
            found[name] = None
        at = text.find(MARK, at + len(MARK))
    return list(found)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(each in "0123456789abcdef" for each in text)
