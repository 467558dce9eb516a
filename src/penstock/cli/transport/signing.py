"""Keys with which the command line signs its requests, for a server that wants signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click

from penstock.sdk.connection.signing import PROFILE_VARIABLE, WORKER_KEY_VARIABLE, SigningKey, key_in
from penstock.wire.signatures import SignedRequest


@dataclass(frozen=True, slots=True)
class RequestSigning:
    """The keys of the two planes; None: requests of that plane are sent without a signature."""

    control: SigningKey | None
    worker: SigningKey | None

    @classmethod
    def found(cls, given: str | None, environment: Mapping[str, str]) -> RequestSigning:
        """The key of the flag for everything, else those of the environment. A malformed one is a usage error."""
        profile = environment.get(PROFILE_VARIABLE, "").strip() or None
        control = given or key_in(environment)
        worker = None if given else environment.get(WORKER_KEY_VARIABLE, "").strip() or None
        try:
            signs = None if control is None else SigningKey.parse(control, profile=profile)
            return cls(signs, signs if worker is None else SigningKey.parse(worker, "worker", profile))
        except ValueError as error:
            raise click.UsageError(f"--signature-key: {error}.") from None

    def headers(
        self, plane: str, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> dict[str, str]:
        """The header that signs a request which has these headers."""
        key = self.worker if plane == "worker" else self.control
        if key is None:
            return {}
        path, _, query = target.partition("?")
        return key.headers(
            SignedRequest(
                method=method,
                raw_path=path,
                raw_query=query,
                host=headers["Host"],
                namespace=headers.get("X-Namespace", ""),
                content_type=headers.get("Content-Type", ""),
                content_encoding="",
                body=content or b"",
            )
        )
