"""`serve`: an index at an address, until a signal stops it; `create_app`: the same for a server of your own."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection
from contextlib import closing
from ipaddress import ip_address
from typing import TYPE_CHECKING

from facetric.embedder import Embedder
from facetric.service.service import Limits, Service

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

SHORTEST_TOKEN = 16
_KEPT_ALIVE = 20  # seconds that an idle connection stays open
_AFTER_THE_LAST = 5  # seconds beyond the time limit of a request that stopping waits
_BACKLOG = 2048  # connections


def create_app(
    model: Embedder,
    index: str | os.PathLike[str],
    *,
    token: str | None = None,
    allow_hosts: Collection[str] = (),
    n_clusters: int | None = None,
    finer: int = 0,
    coarser: int = 0,
    limits: Limits | None = None,
) -> ASGIApp:
    """An ASGI application that serves an index, for a server that you run; it opens the index when that starts.

    It asks for the `token` if there is one, and answers to localhost, IP addresses and the names in `allow_hosts`. Other
    arguments are those of `Collection.cluster`.
    """
    service = Service(index, model, limits=limits, n_clusters=n_clusters, finer=finer, coarser=coarser)
    return _app_of(service, token, allow_hosts)


def serve(
    model: Embedder,
    index: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_hosts: Collection[str] = (),
    n_clusters: int | None = None,
    finer: int = 0,
    coarser: int = 0,
    limits: Limits | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an index until SIGINT or SIGTERM, which is then raised again when all requests under way are answered.

    `host` is a loopback address, or there has to be a `token`. `on_ready` is called with the address. Other arguments are those
    of `create_app`.
    """
    check_access(host, token)
    service = Service(index, model, limits=limits, n_clusters=n_clusters, finer=finer, coarser=coarser)
    app = _app_of(service, token, [*allow_hosts, host])
    with closing(bound_socket(host, port)) as listening:
        service.start()  # before the server, so that what goes wrong is raised here
        if on_ready is not None:
            on_ready(address_of(listening))
        new_server(app, service.limits).run([listening])


def _app_of(service: Service, token: str | None, hosts: Collection[str]) -> ASGIApp:
    try:
        from facetric.service.app import guarded_app
    except ModuleNotFoundError as error:
        raise ImportError(f"facetric.service needs {error.name}, which is not installed: pip install 'facetric[serve]'") from None
    return guarded_app(service, token=token, hosts=hosts)


def check_access(host: str, token: str | None) -> None:
    """A ValueError where strangers could ask without a token, or guess it."""
    if token is None:
        if not is_loopback(host):
            raise ValueError(
                f"{host} can be reached from other machines: set a token (FACETRIC_TOKEN or token=), or serve at 127.0.0.1 only"
            )
    elif len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            f"a token has at least {SHORTEST_TOKEN} letters and digits, no spaces; got {len(token)}: make one with `openssl rand "
            "-hex 24` (FACETRIC_TOKEN or token=)"
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
            made.listen(_BACKLOG)  # from now on requests wait
        except BaseException:
            made.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"cannot listen at {host}:{port} ({reason}): choose another address (host=, port=)") from None
    return made


def address_of(listening: socket.socket) -> str:
    """Of a listening socket, for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def new_server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """Runs an application until a signal, which is raised again when requests under way are answered and it has stopped."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
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
