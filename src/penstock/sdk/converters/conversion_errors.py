"""What is said when a value cannot travel, or does not fit where it arrives."""

from __future__ import annotations


class ConversionError(ValueError):
    """A value that cannot be sent, or that is not what its receiver expects.

    `what` names the thing, `path` the place inside it (empty: all of it), `expected` the type that was wanted.
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
    """A value that is larger, encoded, than a payload may be."""

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
