"""The same workflow code on a Temporal cluster.

Theory of operation
-------------------
Four seams of the SDK have a second implementation here, and nothing else of Penstock knows Temporal:

- `port` is what `penstock.workflow` asks of its engine, per run (`definitions` puts it in place);
- `activities` runs attempts with our own `ActivityRunner` inside of functions of temporalio;
- `transport` answers the requests of clients, handles and commands from a Temporal cluster (`gateway`);
- `worker` runs a `Worker` as one of temporalio, with the slots, rates and polls of its profile.

"Accepted and ignored" does not exist: `support` lists every setting as enforced, approximated or refused, and a worker
does not start with one that is refused.

Only this package imports temporalio, and it is loaded only when an address or a flag names Temporal.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.sdk.connection.connect_options import DEFAULT_NAMESPACE, ConnectOptions

if TYPE_CHECKING:
    from penstock.engines.temporal.transport import TemporalTransport


async def connect_transport(
    options: ConnectOptions,
    *,
    namespace: str | None,
    lazy: bool,
    retry_for: timedelta,
    allow_approximate: bool = False,
) -> tuple[TemporalTransport, str]:
    """Connect to the cluster of an address. Returns the transport and the namespace.

    Args:
        options: address and credentials; the token is the API key.
        namespace: takes precedence over that of the address.
        lazy: do not contact the server now.
        retry_for: how long to try while nothing answers.
        allow_approximate: whether workers start in spite of settings that Temporal has nothing for.
    """
    from penstock.engines.temporal.connection import TemporalAddress, connect
    from penstock.engines.temporal.transport import TemporalTransport

    address = TemporalAddress.parse(options.url)
    found = namespace or address.namespace or options.namespace or DEFAULT_NAMESPACE
    if options.signature_key or options.worker_signature_key:
        raise ValueError("Temporal has no signed requests: pass the API key as token=…")
    key = options.token or options.control_token
    if options.worker_token not in (None, key):
        raise ValueError("Temporal has one API key for clients and workers: pass it as token=…")
    client = await connect(
        address,
        namespace=found,
        api_key=key,
        is_insecure=options.insecure,
        is_lazy=lazy,
        retry_for=retry_for,
    )
    return TemporalTransport(client, allow_approximate=allow_approximate), found
