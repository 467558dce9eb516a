"""Failure converters: what becomes of an exception that leaves its process."""

from __future__ import annotations


class FailureConverter:
    """Changes failures before they are sent, and after they were received. Override what it changes.

    It is called in workflow code, so it must be deterministic.

    Args:
        encode_common_attributes: send messages and stack traces as payloads, which pass the codecs. The server, its
            dashboard and the log of the worker show `Encoded failure` in their place.
    """

    def __init__(self, *, encode_common_attributes: bool = False) -> None:
        self.encode_common_attributes = encode_common_attributes

    def to_failure(self, error: BaseException) -> BaseException:
        """Return the exception that is sent for one that code raised, and for each of its causes.

        Args:
            error: the exception.
        """
        return error

    def from_failure(self, error: Exception) -> BaseException:
        """Return the exception that code finds as `cause` for one that was received.

        Args:
            error: an `ApplicationError` or another error of `penstock.failures`.
        """
        return error

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing."""
        return type(self) is FailureConverter and not self.encode_common_attributes
