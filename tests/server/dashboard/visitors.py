"""A browser without a window: cookies, the token of its session, and the headers that browsers send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.support import asgi

HOST = "127.0.0.1:8080"
ORIGIN = f"http://{HOST}"


@dataclass
class Visitor:
    """Somebody at the dashboard of an application."""

    app: Any
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""

    async def get(self, target: str, **headers: str) -> asgi.Answer:
        reply = await self._send("GET", target, headers)
        found = re.search(r'"X-CSRF-Token": "([^"]+)"', reply.raw.decode("utf-8", "replace"))
        if found:
            self.csrf = found[1]
        return reply

    async def page(self, target: str) -> str:
        """The text of a page that must be there."""
        reply = await self.get(target)
        assert reply.status == 200, (reply.status, reply.headers, reply.raw[-2000:])
        return reply.raw.decode()

    async def post(self, target: str, form: Mapping[str, str] | None = None, **headers: str) -> asgi.Answer:
        """Post a form as our pages do; a header with an empty text is left out."""
        sent = {"origin": ORIGIN, "x-csrf-token": self.csrf, "hx-request": "true"} | headers
        return await self._send("POST", target, sent, urlencode(form or {}).encode())

    async def sign_in(self, token: str, name: str = "") -> asgi.Answer:
        return await self.post("/ui/session", {"token": token, "name": name}, **{"hx-request": ""})

    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes = b""
    ) -> asgi.Answer:
        found = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            found["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method == "POST":
            found |= {
                "content-type": "application/x-www-form-urlencoded",
                "content-length": str(len(raw)),
            }
        lines = [(name, value) for name, value in found.items() if value]
        reply = await asgi.call(self.app, method, target, headers=lines, chunks=[raw])
        if "set-cookie" in reply.headers:
            name, _, value = reply.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        return reply
