"""Around every request: who may ask, how much, how long; and what the answer forbids a browser.

* Host: an IP address, localhost or a name that was allowed. A web page that lets its own name point to this machine (DNS
  rebinding) sends that name.
* Token, where there is one: `Authorization: Bearer TOKEN`, or Basic with the token as the password, which browsers ask for.
* Origin: a request that changes something comes from this server's page, or from no page.
* The body is read here, up to the limit, before anything looks at it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from facetric.service.service import Limits
from facetric.text import counted

HEALTH = "/health"  # needs no token, and is answered when nothing else is
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refused(status: int, detail: str, **headers: str) -> JSONResponse:
    """An error in the form that all errors of the service have."""
    return JSONResponse({"detail": detail}, status, {name.replace("_", "-"): value for name, value in headers.items()})


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, *, limits: Limits, token: str | None = None, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._limits = limits
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._n_under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        refusal = self._refusal(Headers(scope=scope), scope["method"], scope["path"])
        if refusal is not None or scope["path"] == HEALTH:
            await (refusal or self._app)(scope, receive, answer.send)
            return
        self._n_under_way += 1
        try:
            await self._in_time(scope, receive, answer)
        finally:
            self._n_under_way -= 1

    def _refusal(self, headers: Headers, method: str, path: str) -> Response | None:
        host = headers.get("host", "")
        if not self._knows(host):
            return refused(421, "this server does not answer to that name: allow it (--allow-host NAME), or use its IP address")
        if path != HEALTH and self._token is not None and not _has_token(headers.get("authorization", ""), self._token):
            scheme = 'Basic realm="facetric: the password is the token", charset="UTF-8"'
            return refused(401, "the token is missing or wrong: send Authorization: Bearer TOKEN", www_authenticate=scheme)
        origin = headers.get("origin")
        if method not in ("GET", "HEAD") and origin is not None and _place_of(origin) != host.lower():
            return refused(403, "a page of another site may not do this")
        if (length := headers.get("content-length", "0")).isdecimal() and int(length[:20]) > self._limits.n_bytes:
            return self._too_large()
        if path != HEALTH and self._n_under_way >= self._limits.requests:
            under_way = counted(self._limits.requests, "request")
            return refused(429, f"{under_way} under way: try again in a second", retry_after="1")
        return None

    def _too_large(self) -> Response:
        return refused(413, f"a request may have {self._limits.megabytes:g} MB: send a smaller image", connection="close")

    def _knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self._hosts or bool(ip_address(name))
        except ValueError:
            return False

    async def _in_time(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            async with asyncio.timeout(self._limits.seconds) as limit:
                body = bytearray()
                async for part in Request(scope, receive).stream():
                    body += part
                    if len(body) > self._limits.n_bytes:
                        await self._too_large()(scope, receive, answer.send)
                        return
                await self._app(scope, _replayed(bytes(body), receive), answer.send)
        except ClientDisconnect:  # nobody is left to answer
            return
        except TimeoutError:
            if not limit.expired() or answer.has_started:
                raise
            late = refused(503, f"this took more than {self._limits.seconds:g} s: try again later", retry_after="5")
            await late(scope, receive, answer.send)


class _Answer:
    """What is sent, with headers that no answer goes without."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


def _place_of(origin: str) -> str | None:
    """The host and port of an origin."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _has_token(authorization: str, token: str) -> bool:
    """Compared in a time that does not tell how much of it was right."""
    scheme, _, value = authorization.partition(" ")
    given = value.strip().encode()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given, token.encode())


def _replayed(body: bytes, receive: Receive) -> Receive:
    left = [body]

    async def replay() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replay
