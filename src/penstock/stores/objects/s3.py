"""External storage in an S3-compatible service, through obstore.

obstore is chosen because it is asynchronous, has no dependencies, and is the Python face of the `object_store` crate,
which other databases rely on. Its requests run on threads of its own, so that a large object does not delay the event
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import Reason, Unavailable
from penstock.ports.objects import ObjectMissing

if TYPE_CHECKING:
    from obstore.store import S3Store

T = TypeVar("T")
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_REQUEST_TIMEOUT: Final = timedelta(seconds=20)
_ATTEMPTS_MAX: Final = 3
_MACHINE_ROLES: Final = "169.254.169.254"
"""The address that a cloud machine asks for the credentials of its role."""
CREDENTIALS: Final = {
    "ACCESS_KEY_ID": "access_key_id",
    "SECRET_ACCESS_KEY": "secret_access_key",
    "SESSION_TOKEN": "session_token",
}
"""The ends of the names of the environment variables that hold credentials, and what they are."""


class S3Storage:
    """Objects in one bucket, below a prefix."""

    def __init__(self, bucket: str, prefix: str, store: S3Store) -> None:
        self._bucket, self._prefix, self._store = bucket, prefix, store

    async def put(self, key: str, data: bytes) -> None:
        import obstore

        await _asked("written", lambda: obstore.put_async(self._store, key, data))

    async def get(self, key: str, bytes_max: int) -> bytes:
        import obstore

        async def read() -> bytes:
            found = await obstore.get_async(self._store, key)
            if found.meta["size"] > bytes_max:
                return b"\0" * (bytes_max + 1)  # too long to be the object: not read into memory
            return bytes(await found.bytes_async())

        return await _asked("read", read)

    async def delete(self, key: str) -> None:
        import obstore

        try:
            await _asked("deleted", lambda: obstore.delete_async(self._store, key))
        except ObjectMissing:
            return

    def uri(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix + '/' if self._prefix else ''}{key}"


def open_bucket(
    bucket: str, prefix: str, *, region: str | None, endpoint: str | None, credentials: Mapping[str, str]
) -> S3Storage:
    """The storage in a bucket. No request is made. Raises `ImportError` without the extra `penstock[s3]`."""
    from obstore.store import S3Store

    given: dict[str, Any] = {CREDENTIALS[name]: value for name, value in credentials.items()}
    if endpoint is not None:
        given["endpoint"] = endpoint
    store = S3Store(
        bucket,
        prefix=prefix or None,
        region=region or "us-east-1",
        disable_bulk_delete=True,
        client_options={
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "connect_timeout": _CONNECT_TIMEOUT,
            "timeout": _REQUEST_TIMEOUT,
        },
        retry_config={"max_retries": _ATTEMPTS_MAX - 1, "retry_timeout": _REQUEST_TIMEOUT},
        **given,
    )
    return S3Storage(bucket, prefix, store)


async def _asked(what: str, request: Callable[[], Coroutine[Any, Any, T] | Any]) -> T:
    from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

    try:
        found: T = await request()
    except (NotFoundError, FileNotFoundError) as error:
        if "NoSuchBucket" in str(error):
            raise _failed(what, "there is no such bucket") from error
        raise ObjectMissing from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise _failed(what, "the service refused the credentials") from error
    except (BaseError, OSError) as error:
        raise _failed(what, _plain(error)) from error
    return found


def _plain(error: Exception) -> str:
    """The first sentence of an error, without the debugging text that follows it and may quote the request."""
    if _MACHINE_ROLES in str(error):
        return "there are no credentials: name an auth_profile, set AWS_ACCESS_KEY_ID, or give the machine a role"
    text = str(error).partition("\n")[0].partition("Debug source")[0].strip().rstrip(".:,")
    return text[:200] or type(error).__name__


def _failed(what: str, why: str) -> Unavailable:
    return Unavailable(
        Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
        f"An object of the external storage cannot be {what}: {why}.",
        cause=why,
        retryable=True,
    )
