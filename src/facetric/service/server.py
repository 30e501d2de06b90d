"""`serve`: an index at an address, until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection
from contextlib import closing
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from facetric.embedder import Embedder
from facetric.photos.places import existing
from facetric.service.app import create_app
from facetric.service.limits import Limits
from facetric.service.service import Service

SHORTEST_TOKEN = 16
_KEPT_ALIVE = 20  # seconds that an idle connection stays open
_AFTER_THE_LAST = 5  # seconds beyond the time limit of a request that stopping waits


def serve(
    model: Embedder,
    index: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_hosts: Collection[str] = (),
    decisions: str | os.PathLike[str] | None = None,
    n_clusters: int | None = None,
    finer: int = 0,
    coarser: int = 0,
    limits: Limits | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an index until SIGINT or SIGTERM, which is then raised again when all requests under way are answered.

    `host` is a loopback address, or there has to be a `token`. `allow_hosts` are names, beside localhost and IP addresses, that
    requests may ask for. `on_ready` is called with the address. Other arguments are those of `Embedder.cluster` and `Service`.
    """
    check_access(host, token)
    existing(index)
    service = Service(
        model.index(index),
        model,
        lambda decided: model.cluster_index(index, n_clusters=n_clusters, finer=finer, coarser=coarser, decisions=decided),
        embed=lambda pixels: model.vectors(pixels, padded=False),
        decisions=decisions,
        limits=limits,
    )
    with closing(bound_socket(host, port)) as listening:
        service.start()  # before the server, so that what goes wrong is raised here
        app = create_app(service, token=token, hosts=[*allow_hosts, host])
        Server(app, service.limits, on_ready).run([listening])


def check_access(host: str, token: str | None) -> None:
    """A ValueError where strangers could ask without a token, or guess it."""
    if token is None:
        if not is_loopback(host):
            raise ValueError(
                f"{host} can be reached from other machines: set a token (FACETRIC_TOKEN or --token), or serve at 127.0.0.1 only"
            )
    elif len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            f"a token has at least {SHORTEST_TOKEN} letters and digits, no spaces; got {len(token)}: make one with `openssl rand "
            "-hex 24` (FACETRIC_TOKEN or --token)"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; a name that is not localhost could be anything."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; an OSError that names the address where there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)  # asyncio sends without delay only where the protocol is said to be TCP
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(address)
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot listen at {host}:{port} ({reason}): choose another address (--host, --port)") from None
    return made


class Server(uvicorn.Server):
    """Runs an application until a signal, and calls `on_ready` with the address when it accepts requests.

    The signal is raised again when requests under way are answered and the application has stopped.
    """

    def __init__(self, app: ASGIApp, limits: Limits, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=4 * limits.requests,
                timeout_keep_alive=_KEPT_ALIVE,
                timeout_graceful_shutdown=int(limits.seconds) + _AFTER_THE_LAST,
            )
        )
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self._on_ready is not None:
            host, port = sockets[0].getsockname()[:2]
            self._on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")


class _Connection(H11Protocol):
    """A connection is closed when no request has begun for a while, however many bytes of one have dripped in."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _expect_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self._close_unless_busy)

    def _close_unless_busy(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
