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
