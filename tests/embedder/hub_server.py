"""A hub on loopback that speaks the protocol as far as `huggingface_hub` asks for it; HF_ENDPOINT points to it.

Large files (.safetensors, .onnx, .bin) are kept elsewhere, as on the real one: `resolve` redirects to another host (localhost,
where the hub is 127.0.0.1), which takes ranges and must never be sent a token. Uploads go through preupload, LFS and a commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_of_the_owner"
_LARGE = (".safetensors", ".onnx", ".bin")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(/(?P<what>\w+)/(?P<revision>[^/]+))?")
_BATCH = re.compile(r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch")


@dataclass
class Repository:
    """Commits are files by name; `access` is "open", "private", "gated", or "forbidden" even to the owner."""

    access: str = "open"
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], *, branch: str = "main") -> str:
        """Add files to a branch: the commit's name."""
        whole = {**self.commits.get(self.refs.get(branch, ""), {}), **files}
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in whole.items()}
        name = hashlib.sha1(json.dumps([hashes, len(self.commits)], sort_keys=True).encode()).hexdigest()
        self.commits[name] = whole
        self.refs[branch] = name
        return name


class Hub(ThreadingHTTPServer):
    """The server with its repositories, what it was asked, and what is wrong with it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.uploaded: dict[str, bytes] = {}  # LFS objects by their SHA-256
        self.requests: list[tuple[str, str, str | None, bool]] = []  # method, path, range, whether a token came
        self.cut_after: int | None = None  # bytes of a body, after which the connection breaks
        self.cuts = 0  # how many connections still break
        self.pause = 0.0  # seconds between pieces of a body
        self.silence = 0.0  # seconds before each answer
        self.is_corrupt = False  # bodies of large files have a flipped bit
        self.takes_ranges = True
        self.failing = 0  # the status of all answers

    def add(self, repo: str, files: dict[str, bytes], *, access: str = "open") -> str:
        """Commit files to the main branch of a repository, which may be new."""
        found = self.repositories.setdefault(repo, Repository(access))
        return found.commit(files)

    def environment(self, cache: Path, **others: str) -> dict[str, str]:
        """For a process that is to reach this hub and no other, with a cache of its own. It cannot reach Xet's storage."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "no_proxy": "*", **others}

    def asked(self, method: str, start: str) -> list[str | None]:
        """The ranges of the requests with this method to paths that start so."""
        return [span for found, path, span, _ in self.requests if found == method and path.startswith(start)]


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, urlsplit(unquote(self.path)).path
        has_token = "Authorization" in self.headers
        hub.requests.append((self.command, path, self.headers.get("Range"), has_token))
        body = self._body()
        time.sleep(hub.silence)
        if hub.failing:
            self._send(hub.failing)
        elif path.startswith("/storage/"):
            assert not has_token, "the token was sent to where large files are kept"
            oid = path.removeprefix("/storage/")
            if self.command == "PUT":
                assert hashlib.sha256(body).hexdigest() == oid
                hub.uploaded[oid] = body
                self._send(200)
            else:
                self._send_file(self._large(oid), {"ETag": f'"{oid}"'}, is_corrupt=hub.is_corrupt)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._send_json({"errors": [], "warnings": []})
        elif path == "/api/whoami-v2":
            self._send_json(
                {"name": "owner", "type": "user", "orgs": []} if self._is_owner() else {}, 200 if self._is_owner() else 401
            )
        elif match := _RESOLVE.fullmatch(path):
            self._resolve(**match.groupdict())
        elif match := _BATCH.fullmatch(path):
            self._batch(json.loads(body))
        elif match := _API.fullmatch(path):
            self._api(body, **match.groupdict())
        else:
            self._send(404)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while n_bytes := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(n_bytes))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _is_owner(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name: str, *, writes: bool = False) -> Repository | None:
        """The repository, if it is there and open to who asks; else it is answered as the hub does."""
        found = self.server.repositories.get(name)
        if found is None or (found.access == "private" and not self._is_owner()):
            self._send(404 if self._is_owner() else 401, {"X-Error-Code": "RepoNotFound"})
        elif found.access == "gated" and not self._is_owner():
            self._send(401, {"X-Error-Code": "GatedRepo"})
        elif found.access == "forbidden" or (writes and not self._is_owner()):
            self._send(403, {"X-Error-Message": "You may not do this"})
        else:
            return found
        return None

    def _resolve(self, repo: str, revision: str, file: str) -> None:
        found = self._repository(repo)
        if found is None:
            return None
        name = found.refs.get(revision, revision)
        if name not in found.commits:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        commit = {"X-Repo-Commit": name}
        if file not in found.commits[name]:
            return self._send(404, {**commit, "X-Error-Code": "EntryNotFound"})
        content = found.commits[name][file]
        if not file.endswith(_LARGE):
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return self._send_file(content, {**commit, "ETag": f'"{blob}"'})
        oid = hashlib.sha256(content).hexdigest()
        stored = f"http://localhost:{self.server.server_port}/storage/{oid}"
        linked = {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(content)), "Location": stored}
        return self._send(302, {**commit, **linked})

    def _large(self, oid: str) -> bytes:
        every = (
            content
            for found in self.server.repositories.values()
            for files in found.commits.values()
            for content in files.values()
        )
        return next(content for content in every if hashlib.sha256(content).hexdigest() == oid)

    def _send_file(self, content: bytes, headers: dict[str, str], *, is_corrupt: bool = False) -> None:
        hub, first, status = self.server, 0, 200
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if span and hub.takes_ranges:
            first, status = int(span[1]), 206
            headers = {**headers, "Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
        if is_corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        sent = content[first:]
        self._head(status, {**headers, "Content-Length": str(len(sent)), "Accept-Ranges": "bytes"})
        if self.command == "HEAD":
            return
        is_cut = hub.cut_after is not None and hub.cuts > 0 and len(sent) > hub.cut_after
        piece = 1 << 16
        for start in range(0, hub.cut_after if is_cut and hub.cut_after is not None else len(sent), piece):
            end = min(start + piece, hub.cut_after) if is_cut and hub.cut_after is not None else start + piece
            self.wfile.write(sent[start:end])
            self.wfile.flush()
            time.sleep(hub.pause)
        if is_cut:
            hub.cuts -= 1
            self.close_connection = True

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or 'owner'}/{asked['name']}"
        if not self._is_owner():
            self._send_json({"error": "Invalid username or password."}, 401)
        elif asked.get("organization") not in (None, "owner"):
            self._send_json({"error": "You don't have the rights to create a model under this namespace"}, 403)
        elif name in self.server.repositories:
            self._send_json({"error": "You already created this model repo", "url": f"{self.server.endpoint}/{name}"}, 409)
        else:
            is_private = asked.get("private") or asked.get("visibility") == "private"
            self.server.repositories[name] = Repository("private" if is_private else "open")
            self.server.repositories[name].commit({".gitattributes": b"*.safetensors filter=lfs\n"})
            self._send_json({"url": f"{self.server.endpoint}/{name}", "name": name})

    def _batch(self, asked: dict[str, Any]) -> None:
        storage = f"http://localhost:{self.server.server_port}/storage"
        upload = [{**found, "actions": {"upload": {"href": f"{storage}/{found['oid']}"}}} for found in asked["objects"]]
        self._send_json({"objects": upload, "transfer": "basic"})

    def _api(self, body: bytes, repo: str, what: str | None, revision: str | None) -> None:
        found = self._repository(repo, writes=what in ("preupload", "commit"))
        if found is None:
            return None
        if what == "preupload":
            modes = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(_LARGE) else "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self._send_json({"files": modes})
        if what == "commit":
            files = {}
            for line in map(json.loads, body.decode().splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.server.uploaded[value["oid"]]
            name = found.commit(files)
            return self._send_json(
                {"success": True, "commitOid": name, "commitUrl": f"{self.server.endpoint}/{repo}/commit/{name}"}
            )
        name = found.refs.get(revision or "main", revision or "")
        if name not in found.commits:
            return self._send(404, {"X-Error-Code": "RevisionNotFound"})
        siblings = [{"rfilename": file} for file in found.commits[name]]
        return self._send_json(
            {"id": repo, "modelId": repo, "sha": name, "private": found.access == "private", "siblings": siblings}
        )

    def _send_json(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self._head(status, {"Content-Type": "application/json", "Content-Length": str(len(data))})
        self.wfile.write(data)

    def _send(self, status: int, headers: dict[str, str] | None = None) -> None:
        self._head(status, {**(headers or {}), "Content-Length": "0"})

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub in a thread of this process."""
    hub = Hub()
    thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


def reach(monkeypatch: pytest.MonkeyPatch, endpoint: str, cache: Path, *, token: str = "", is_offline: bool = False) -> None:
    """This process reaches the hub there, with a cache of its own; the client reads the environment but once."""
    from huggingface_hub import constants

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", token)
    values = {"ENDPOINT": endpoint, "HF_HUB_CACHE": str(cache), "HF_TOKEN_PATH": str(cache / "token")}
    values |= {"HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}"}
    for name, value in {**values, "HF_HUB_OFFLINE": is_offline, "HF_HUB_DISABLE_XET": True}.items():
        monkeypatch.setattr(constants, name, value)


def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
