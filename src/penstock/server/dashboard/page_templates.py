"""Templates: compiled once from package data, escaped always, and rendered whole or panel by panel.

A page's template extends `shell.html`. Whatever changes while a page is open stands in a block whose name begins with
`live_` and that renders exactly one element, whose id is the rest of the name with dashes: `live_top_keys` renders
`<section id="top-keys">`. A page is rendered whole when it is loaded; the stream behind it renders its live blocks
only, with the same values, and sends those that changed.

Macros of `macros.html` are globals, because a block that is rendered alone does not see the imports of its template.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2

from penstock.server.dashboard import formats
from penstock.server.dashboard.assets import ASSETS

LIVE: Final = "live_"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("penstock.server.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    environment.filters |= formats.FILTERS
    environment.globals |= {
        "asset": ASSETS.url,
        "link": link,
        "width": formats.width,
        "tone": formats.tone,
    }
    macros = environment.get_template("macros.html").module
    environment.globals |= {name: value for name, value in vars(macros).items() if not name.startswith("_")}
    return environment


def page(template: str, values: Mapping[str, Any]) -> str:
    """A whole page, or a fragment that is a template of its own."""
    return _environment().get_template(template).render(values)


def panels(template: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The live blocks of a page's template and of the shell, by the id of their element."""
    found: dict[str, str] = {}
    for each in ("shell.html", template):
        loaded = _environment().get_template(each)
        for name, block in loaded.blocks.items():
            if name.startswith(LIVE):
                context = loaded.new_context(dict(values))
                found[name.removeprefix(LIVE).replace("_", "-")] = "".join(block(context)).strip()
    return found


def link(*segments: str, **parameters: str | None) -> str:
    """The address of a page: segments below `/ui`, escaped, and parameters, without those that are None or empty."""
    path = "/".join(("/ui", *(quote(segment, safe="") for segment in segments)))
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path
