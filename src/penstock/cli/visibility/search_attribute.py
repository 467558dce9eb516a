"""Commands for search attributes: the names, with their types, by which workflows are found."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import CONFIRM_DELETION, confirm
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, name, plain
from penstock.cli.transport.session import CliSession

_TYPES = ("keyword", "text", "int", "double", "bool", "datetime", "keyword_list")


@noun("search-attribute", example="penstock search-attribute create customer --type keyword")
def search_attribute() -> None:
    """List, create and delete the search attributes of a namespace."""


@search_attribute.verb("list", example="penstock search-attribute list")
@click.pass_obj
def list_attributes(session: CliSession) -> None:
    """List the search attributes with their types, those of the server first."""
    session.show(session.connect().get("search-attributes"), _draw_list)


@search_attribute.verb("create", example="penstock search-attribute create customer --type keyword")
@click.argument("attribute", metavar="NAME")
@click.option("--type", "kind", type=click.Choice(_TYPES), required=True, help="The type of its values.")
@click.pass_obj
def create_attribute(session: CliSession, attribute: str, kind: str) -> None:
    """Register a search attribute with a type; values of other types are then refused."""
    answer = session.connect().post("search-attributes", body={"name": attribute, "type": kind})
    session.show(answer, _draw_one)
    echo_err(f"Created the search attribute {attribute}.")


@search_attribute.verb("delete", example="penstock search-attribute delete customer --yes")
@click.argument("attribute", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@click.pass_obj
def delete_attribute(session: CliSession, attribute: str, yes: bool) -> None:
    """Remove the type of a search attribute; the values of workflows are kept."""
    connection = session.connect()
    confirm(f"Delete the search attribute {attribute}?", yes, CONFIRM_DELETION)
    session.show(connection.delete("search-attributes", attribute), _draw_one)
    echo_err(f"Deleted the search attribute {attribute}.")


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    custom = body.get("custom_attributes") or {}
    rows = [(each, kind, "server") for each, kind in (body.get("system_attributes") or {}).items()]
    rows += [(each, kind, "namespace") for each, kind in custom.items()]
    screen.table(
        ["name", "type", "of the"], [[name(each), plain(kind), plain(owner)] for each, kind, owner in rows]
    )
    if not custom:
        echo_err("None of your own yet. Create one with `penstock search-attribute create NAME --type TYPE`.")


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(body, "name:name, type, outcome:status")
