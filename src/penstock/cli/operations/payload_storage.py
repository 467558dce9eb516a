"""Where a namespace keeps its large payloads: showing, setting and testing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from penstock.cli.grammar import verb, with_options
from penstock.cli.inputs import given
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, plain
from penstock.cli.transport.session import CliSession

_CONFIG = ("uri", "bucket", "prefix", "region", "endpoint", "auth_profile")
_OPTIONS = (
    click.option(
        "--driver", type=click.Choice(["local", "s3"]), help="A directory, or an S3-compatible service."
    ),
    click.option(
        "--threshold-bytes",
        type=click.IntRange(1),
        metavar="N",
        help="Larger encoded payloads are kept outside.",
    ),
    click.option(
        "--uri", metavar="PATH", help="local: a folder below DW_EXTERNAL_STORAGE_DIR of the server."
    ),
    click.option("--bucket", metavar="NAME", help="s3: the bucket."),
    click.option("--prefix", metavar="PATH", help="s3: where in the bucket."),
    click.option("--region", metavar="NAME", help="s3: the region."),
    click.option("--endpoint", metavar="URL", help="s3: one of DW_EXTERNAL_STORAGE_ENDPOINTS of the server."),
    click.option(
        "--auth-profile",
        metavar="NAME",
        help="s3: the server reads STORAGE_NAME_ACCESS_KEY_ID and STORAGE_NAME_SECRET_ACCESS_KEY.",
    ),
    click.option("--enable/--disable", "enabled", default=None, help="Turn it on or off; it is on when set."),
)


@verb("storage", example="penstock namespace storage orders --driver s3 --bucket payloads --region eu-1")
@click.argument("target", metavar="NAME")
@with_options(*_OPTIONS)
@click.pass_obj
def payload_storage(session: CliSession, /, target: str, **fields: Any) -> None:
    """Show or set where large payloads are kept; storage that does not work is refused."""
    connection, wanted = session.connect(), given(**fields)
    answer = connection.get("namespaces", target)
    if wanted:
        answer = connection.put("namespaces", target, "external-storage", body=_policy(answer.body, wanted))
        echo_err(f"Set the external payload storage of {target}.")
    session.show(answer, _draw)


@verb("test-storage", example="penstock namespace test-storage orders")
@click.argument("target", metavar="NAME")
@click.option(
    "--large-payload-bytes", type=click.IntRange(1, 16_777_216), metavar="N", help="Size of the large one."
)
@click.pass_obj
def test_storage(session: CliSession, target: str, large_payload_bytes: int | None) -> None:
    """Write, read back and delete a small and a large object (needs the admin role)."""
    body = given(large_payload_bytes=large_payload_bytes)
    answer = replace(session.connect(), namespace=target).post("storage", "test", body=body)
    session.show(answer, _draw_test)


def _policy(described: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The whole policy to set: what is named, and the rest as it is. Another driver begins anew."""
    before = described.get("external_payload_storage") or {}
    if wanted.get("driver", before.get("driver")) != before.get("driver"):
        before = {}
    driver = wanted.get("driver") or before.get("driver")
    if driver is None:
        raise click.UsageError("Name the driver: --driver local or --driver s3.")
    config = dict(before.get("config") or {}) | {name: wanted[name] for name in _CONFIG if name in wanted}
    policy = {"driver": driver, "enabled": wanted.get("enabled", True)}
    threshold = wanted.get("threshold_bytes", before.get("threshold_bytes"))
    return policy | given(threshold_bytes=threshold, config=config or None)


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    policy = body.get("external_payload_storage")
    if not policy:
        screen.line(
            plain(
                "Payloads stay in the database. Set a driver: penstock namespace storage NAME --driver local|s3"
            )
        )
        return
    from penstock.core.external_payloads import THRESHOLD_DEFAULT

    facts = [
        ("driver", policy["driver"]),
        ("state", "on" if policy.get("enabled", True) else "off"),
        ("threshold", f"{policy.get('threshold_bytes') or THRESHOLD_DEFAULT:,} bytes"),
    ]
    facts += [(key.replace("_", " "), value) for key, value in (policy.get("config") or {}).items()]
    kept = body.get("external_payloads")
    if kept:
        facts.append(("kept", f"{kept['objects']:,} objects, {kept['bytes']:,} bytes"))
    screen.facts([(key, plain(value)) for key, value in facts])


def _draw_test(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(body, "namespace:name, driver:name, status:status")
    for key in ("small_payload", "large_payload"):
        trip = body[key]
        screen.facts([(key.replace("_", " "), plain(f"{trip['bytes']:,} bytes, {trip['reference_uri']}"))])
