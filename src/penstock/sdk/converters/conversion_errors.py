"""Errors for values that cannot be encoded, or do not match the type expected by the receiver."""

from __future__ import annotations


class ConversionError(ValueError):
    """A value cannot be encoded, or does not have the type that its receiver expects.

    `what` names the value, `path` the position inside it (empty for the whole), `expected` the expected type.
    """

    def __init__(self, what: str, problem: str, *, path: str = "", expected: str | None = None) -> None:
        super().__init__(what, problem)
        self.what = what
        self.problem = problem
        self.path = path
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.what}: {self.path} {self.problem}" if self.path else f"{self.what}: {self.problem}"


class ExternalPayloadError(ConversionError):
    """A payload in external storage cannot be read: it is missing, damaged, or out of reach now.

    `reason` is the server's: `external_payload_not_found`, `_expired`, `_integrity_mismatch` or `_unavailable`, of
    which only the last may be gone at the next attempt (`retryable`).
    """

    def __init__(self, what: str, reason: str, message: str) -> None:
        super().__init__(what, f"it is in external storage and cannot be read: {message}")
        self.reason = reason
        self.message = message

    @property
    def retryable(self) -> bool:
        return self.reason == "external_payload_unavailable"

    def __reduce__(self) -> tuple[type[ExternalPayloadError], tuple[str, str, str]]:
        return type(self), (self.what, self.reason, self.message)


class UnreadablePayload(ConversionError):
    """A payload was written with a codec or converter that this program has not, or that cannot read it.

    `encoding` names it. The payload is kept as it is: the task that needs it is retried, until a program reads it.
    """

    def __init__(self, what: str, encoding: str, problem: str) -> None:
        super().__init__(what, problem)
        self.encoding = encoding

    def __reduce__(self) -> tuple[type[UnreadablePayload], tuple[str, str, str]]:
        return type(self), (self.what, self.encoding, self.problem)


class HeadersTooLarge(ConversionError):
    """The headers of a call exceed their maximum size."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        problem = (
            f"they take {size:,} bytes encoded, and headers_bytes_max is {limit:,}. Pass a reference instead"
        )
        super().__init__(what, problem)
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[type[HeadersTooLarge], tuple[str, int, int]]:
        return type(self), (self.what, self.size, self.limit)


class PayloadTooLarge(ConversionError):
    """An encoded value exceeds the maximum payload size."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        problem = (
            f"it takes {size:,} bytes encoded, and payload_bytes_max is {limit:,}. Keep it elsewhere and pass a "
            "reference to it, or compress it: DataConverter(codecs=[ZlibCodec()])"
        )
        super().__init__(what, problem)
        self.size = size
        self.limit = limit

    def __reduce__(self) -> tuple[type[PayloadTooLarge], tuple[str, int, int]]:
        return type(self), (self.what, self.size, self.limit)
