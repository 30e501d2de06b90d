"""The addresses of the service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from html import escape
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response

from facetric.html_page import html_page
from facetric.images import ImageError
from facetric.machine import installed_version
from facetric.photos import ContradictionError, Match
from facetric.service.engine import Catalog
from facetric.service.guard import HEALTH, Guard, refused
from facetric.service.records import Change, Clusters, Found, Health, Neighbor, Problem, Saved, Vector
from facetric.service.service import Service, media_type
from facetric.text import printable

IMAGE = {  # the body of a request is the file of an image
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
_PAGE_POLICY = {"Content-Security-Policy": "frame-ancestors 'none'"}  # the rest is in the page, with the hashes of its scripts
_PATIENCE = 10.0  # seconds until a browser is told that groups are being made
_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}  # an id is a hash of the content
_STATUSES = {
    400: "The request makes no sense.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked.",
    404: "There is no such photo.",
    409: "It contradicts what was decided, or there is nothing to make groups from.",
    413: "Too many bytes.",
    415: "The body is not what it should be.",
    421: "The server does not answer to this name.",
    422: "The body is not an image that can be opened, or a value is out of range.",
    429: "Too many requests are under way.",
    503: "It took too long.",
}
Id = Annotated[str, InPath(pattern="^[0-9a-f]{32}$", description="The id of a photo, as neighbors and clusters have it.")]
Top = Annotated[int, Query(ge=1, le=1000, description="How many neighbors.")]
AtLeast = Annotated[float | None, Query(ge=-1, le=1, description="Only similarities of at least this, which then are enough.")]


def guarded_app(service: Service, *, token: str | None = None, hosts: Collection[str] = ()) -> Guard:
    """An ASGI application. It starts the service with its lifespan, asks for the `token` if there is one, and answers to
    localhost, IP addresses and the names in `hosts`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.start)
        yield
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="facetric",
        version=installed_version("facetric"),
        description="Search in an index of photos, and its groups.",
        lifespan=lifespan,
        docs_url=None,  # would load scripts from another host
        redoc_url=None,
        responses={status: {"model": Problem, "description": text} for status, text in _STATUSES.items()},
    )
    app.add_exception_handler(RequestValidationError, _one_line)
    app.add_exception_handler(ImageError, lambda _, error: refused(422, str(error)))
    app.add_exception_handler(OSError, lambda _, error: refused(503, printable(error), retry_after="5"))  # such as a full disk
    _add_search(app, service)
    _add_photos(app, service)
    _add_groups(app, service)
    return Guard(app, limits=service.limits, token=token, hosts=hosts)


def _add_search(app: FastAPI, service: Service) -> None:
    @app.post("/search", openapi_extra=IMAGE)
    async def search(request: Request, top: Top = 10, at_least: AtLeast = None) -> Found:
        """The photos that are most similar to an image. The body is the file of the image."""
        answer = await service.answer(await _image(request), top=top, at_least=at_least)
        assert answer.match is not None
        return _found(answer.match, answer.catalog)

    @app.post("/embed", openapi_extra=IMAGE)
    async def embed(request: Request) -> Vector:
        """The vector of an image. The body is the file of the image."""
        answer = await service.answer(await _image(request), top=0)
        return Vector(model=service.engine.encoder.fingerprint, vector=answer.vector.tolist())

    @app.get(HEALTH)
    async def health() -> Health:
        """Whether the service can answer. Needs no token."""
        if not service.engine.is_alive:
            raise HTTPException(503, "the engine has stopped: restart the server")
        return Health()


def _add_photos(app: FastAPI, service: Service) -> None:
    @app.get("/photos/{photo_id}", response_class=Response, responses={200: {"content": {"image/*": {}}}})
    async def photo(photo_id: Id) -> Response:
        """The file of a photo, as it is."""
        data = _known(await service.photo(photo_id))
        return Response(data, media_type=media_type(data), headers=_FOR_EVER)

    @app.get("/thumbnails/{photo_id}.jpg", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    async def thumbnail(photo_id: Id) -> Response:
        """A small JPEG of a photo."""
        return Response(_known(await service.thumbnail(photo_id)), media_type="image/jpeg", headers=_FOR_EVER)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> Response:
        about = {"title": service.title, "n_photos": service.engine.catalog.n_photos, "limits": vars(service.limits)}
        text = html_page(
            "facetric.service", title=service.title, about=about, binary={}, images="'self' blob:", connections="'self'"
        )
        return HTMLResponse(text, headers=_PAGE_POLICY)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        """Browsers ask for one."""
        return Response(status_code=204, headers=_FOR_EVER)


def _add_groups(app: FastAPI, service: Service) -> None:
    @app.get("/clusters", responses={200: {"model": Clusters}})
    async def clusters() -> Response:
        """All photos in clusters that keep to every decision. Made when it is asked for: 503 until it is done."""
        try:
            return Response(await service.groups.record(), media_type="application/json")
        except ValueError as error:
            raise HTTPException(409, printable(error)) from None

    @app.get("/groups", response_class=HTMLResponse, include_in_schema=False)
    async def groups_page() -> Response:
        try:
            async with asyncio.timeout(min(_PATIENCE, service.limits.seconds / 2)):
                return HTMLResponse(await service.groups.page(), headers=_PAGE_POLICY)
        except TimeoutError:
            return _notice(503, "The photos are being put in groups. This page loads again by itself.", Refresh="3")
        except ValueError as error:
            return _notice(409, printable(error))

    @app.get("/decisions")
    async def decisions() -> Change:
        """Everything that is decided: a file for `facetric cluster --decisions`."""
        return Change.model_validate((await asyncio.to_thread(service.decisions)).as_dict())

    @app.post("/decisions")
    async def decide(change: Change) -> Saved:
        """Name, merge, split, reject, confirm; or take such decisions back. When this is answered, it is on the disk."""
        try:
            changed = await service.change_decisions(change.model_dump())
        except ContradictionError as error:
            raise HTTPException(409, printable(error)) from None
        except ValueError as error:
            raise HTTPException(422, f"the change {printable(error)}") from None
        return Saved(n_decisions=len(changed.decisions))


def _notice(status: int, text: str, **headers: str) -> Response:
    start = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return HTMLResponse(f"{start}<title>Groups</title><p>{escape(text)}</p>", status, headers)


def _known(data: bytes | None) -> bytes:
    if data is None:
        raise HTTPException(404, "there is no such photo, or its file has changed: see `facetric index update`")
    return data


async def _image(request: Request) -> bytes:
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise HTTPException(415, "the body is the image itself, not a form: `curl --data-binary @photo.jpg`")
    return await request.body()


def _found(match: Match, catalog: Catalog) -> Found:
    neighbors = [
        Neighbor(
            id=hit.entry.content.hex(),
            name=catalog.name(hit.entry.path),
            label=printable(hit.entry.label) or None,
            similarity=round(hit.similarity, 6),
            distance=round(math.sqrt(2 - 2 * hit.similarity), 6),
            is_similar_enough=hit.similarity >= match.near_enough,
        )
        for hit in match.hits
    ]
    vote = match.vote
    return Found(
        unknown=match.is_unknown,
        label=None if vote is None else printable(vote.label),
        expected_precision=None if vote is None else vote.expected_precision,
        neighbors=neighbors,
    )


async def _one_line(_: Request, error: Any) -> Response:
    """What was wrong, without echoing what was sent."""
    said = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:3]]
    return refused(422, printable("; ".join(said)))
