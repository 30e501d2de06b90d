"""Files of repositories on the Hugging Face hub: downloaded, resumed, checked, cached; or put there. Each failure is one line."""

from __future__ import annotations

import errno
import hashlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from filelock import FileLock

from facetric.embedder.networks import networks_here
from facetric.embedder.weights import HUB_TIMEOUT, WeightsError, quiet
from facetric.progress import in_notebook

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_SLOW = 2.0  # seconds until there is a progress bar
_ATTEMPTS = 5  # of a download that gets no further
_BLOCK = 1 << 18


def fetched(repo: str, file: str, *, revision: str | None = None, sha256: str | None = None) -> Path:
    """The path of one file of the repository OWNER/NAME, in the cache that all programs of this hub share (HF_HOME).

    * `revision`: a branch, a tag, or a commit, whose files never change and need no connection once they are here; "main" unless
      given;
    * `sha256`: of the file; what has another one is removed from the cache and refused. Without it a download is compared with
      what the hub states.

    A download that stopped is resumed. Without a connection, and with HF_HUB_OFFLINE=1, the file comes from the cache. Whatever
    fails is a WeightsError of one line; that there is no connection is said within five seconds.
    """
    from huggingface_hub import constants, hf_hub_download, hf_hub_url, try_to_load_from_cache

    with _one_line(repo, file, revision), quiet("huggingface_hub"):
        stored = try_to_load_from_cache(repo, file, revision=revision)
        known = Path(stored) if isinstance(stored, str) else None
        if known is not None and sha256 is not None and not _has_checksum(known, sha256):
            known.resolve().unlink()
            known.unlink(missing_ok=True)
            known = None
        if known is not None and (constants.HF_HUB_OFFLINE or _COMMIT.fullmatch(revision or "")):
            return known
        if constants.HF_HUB_OFFLINE:
            raise WeightsError(
                f"{file} of {_named(repo, revision)} is not in the cache, and HF_HUB_OFFLINE is set: load it once without that"
            )
        try:
            about = _stated(hf_hub_url(repo, file, revision=revision))
        except Exception as error:  # the clients that it is built on have errors of their own for a lost connection
            if known is not None and _status(error) not in range(400, 500):
                return known
            raise
        if known is not None and about.commit_hash in known.parts:
            return known
        if sha256 is not None and len(about.etag) == len(sha256) and about.etag != sha256:
            raise WeightsError(
                f"{file} of {_named(repo, revision)} is not the one that belongs here, its checksum is another: it was replaced "
                "on the hub; name the revision that had it"
            )
        folder = f"models--{repo.replace('/', '--')}"
        blob = Path(constants.HF_HUB_CACHE, folder, "blobs", about.etag)
        lock = Path(constants.HF_HUB_CACHE, ".locks", folder, f"{about.etag}.lock")  # the hub's own, for what others download
        for place in (blob, lock):
            place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):
            if blob.exists() and not _has_checksum(blob, sha256 or about.etag):
                blob.unlink()
            if not blob.exists():
                _download(about, blob, file, _named(repo, revision), sha256)
        return Path(hf_hub_download(repo, file, revision=revision, etag_timeout=HUB_TIMEOUT))  # which is here: it is linked


def pushed(folder: Path, repo: str, *, token: str | None, private: bool) -> str:
    """The commit with which the files of a folder are in the repository OWNER/NAME, which is made if there is none."""
    from huggingface_hub import HfApi

    hub = HfApi(token=token)
    with _one_line(repo, "what is there", None, verb="write"), quiet("huggingface_hub"):
        _soon(hub.whoami)
        hub.create_repo(repo, private=private, exist_ok=True)
        if private and not hub.model_info(repo).private:
            raise WeightsError(
                f"{repo} is there already, and everyone may read it: choose another name, or allow that (--public)"
            )
        with _bars_if_watched():
            done = hub.upload_folder(repo_id=repo, folder_path=folder, commit_message="A model of facetric")
        return str(done.oid)


def _stated(url: str) -> Any:
    """What the hub says of a file: address, size, checksum, commit."""
    from huggingface_hub import get_hf_file_metadata

    about = _soon(lambda: get_hf_file_metadata(url, timeout=HUB_TIMEOUT))
    if about.commit_hash is None or about.etag is None:
        raise ConnectionError("what answers there is no hub")
    return about


def _soon(request: Callable[[], Any]) -> Any:
    """What it returns. A TimeoutError after five seconds, whatever it waits for: a client's own limit is one for each address of
    the host, and none for the search of its name.
    """
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(request())
        except Exception as error:  # raised below
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT)
    if not answers:
        raise TimeoutError(f"no answer within {HUB_TIMEOUT:.0f} seconds")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _download(about: Any, blob: Path, file: str, name: str, sha256: str | None) -> None:
    """Put the file in its place in the cache, whole and checked. The hub's own client would begin again in another process."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]
    from tqdm.auto import tqdm

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    token = headers.pop("authorization", None)
    part = blob.with_name(f"{blob.name}.incomplete")
    bar_options: dict[str, Any] = {"desc": file, "unit": "B", "unit_scale": True, "leave": False, "delay": _SLOW}
    with part.open("ab") as target, tqdm(total=about.size, disable=not _is_watched(), **bar_options) as bar:
        n_left = _ATTEMPTS
        if about.size is not None and target.tell() > about.size:
            target.truncate(0)
        while about.size is None or target.tell() < about.size:
            bar.update(target.tell() - bar.n)
            request = Request(about.location, headers={**headers, "Range": f"bytes={target.tell()}-"})
            if token is not None and urlsplit(about.location).netloc == urlsplit(constants.ENDPOINT).netloc:
                request.add_unredirected_header("Authorization", token)  # for the hub alone, not for where large files are
            try:
                with urlopen(request, timeout=2 * HUB_TIMEOUT) as answer:
                    if answer.status != 206:  # the whole file
                        target.truncate(0)
                    while block := answer.read(_BLOCK):
                        target.write(block)
                        bar.update(len(block))
                        n_left = _ATTEMPTS
                if about.size is None:
                    break
                if target.tell() < about.size:
                    raise ConnectionError("the connection broke")
            except (OSError, HTTPException) as error:
                if getattr(error, "errno", None) in _NO_SPACE:
                    part.unlink()
                    raise
                if _status(error):
                    raise
                n_left -= 1
                if not n_left:
                    size = f"{target.tell() / 1e6:.1f}" + (f" of {about.size / 1e6:.1f}" if about.size else "")
                    raise WeightsError(
                        f"the download of {file} of {name} stopped after {size} MB ({_first_line(error)}): run it again, it goes "
                        "on from there"
                    ) from error
                time.sleep(1)
    if not _has_checksum(part, sha256 or about.etag):
        part.unlink()
        raise WeightsError(
            f"{file} of {name} was damaged on its way, its checksum is wrong; it was removed: run it again, and if that does not "
            "help, the file on the hub is damaged"
        )
    part.replace(blob)


def _has_checksum(path: Path, stated: str) -> bool:
    """Whether the file is what is stated: a SHA-256 of large files, git's hash of small ones; True for what is neither."""
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", stated):
        return True
    digest = hashlib.sha256() if len(stated) == 64 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == stated


@contextmanager
def _bars_if_watched() -> Iterator[None]:
    """The client shows bars of its own, in log files too."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    is_changed = not _is_watched() and not are_progress_bars_disabled()
    if is_changed:
        disable_progress_bars()
    try:
        yield
    finally:
        if is_changed:
            enable_progress_bars()


@contextmanager
def _one_line(repo: str, file: str, revision: str | None, *, verb: str = "read") -> Iterator[None]:
    """Turn whatever the hub's client raises into a WeightsError."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name, login = _named(repo, revision), "log in with `hf auth login`, or set HF_TOKEN"
    lines: dict[type[Exception], Callable[[], str]] = {
        GatedRepoError: lambda: (
            f"{repo} is for those who accepted its conditions: accept them at {constants.ENDPOINT}/{repo}, then {login}"
        ),
        RepositoryNotFoundError: lambda: (
            f"there is no {repo} on the hub, or it is private: check the name; for a private one {login}"
        ),
        RevisionNotFoundError: lambda: (
            f"{repo} has no revision {revision or 'main'}, or no longer: {constants.ENDPOINT}/{repo}/commits lists those that "
            "are there; without one it is the newest"
        ),
        LocalTokenNotFoundError: lambda: f"the hub has to know who you are to {verb} {name}: {login}",
        EntryNotFoundError: lambda: f"{name} has no file {file}: check the name and the revision",
    }
    try:
        yield
    except WeightsError:
        raise
    except Exception as error:  # see above
        line = next((say() for kind, say in lines.items() if isinstance(error, kind)), None)
        status = _status(error)
        if line is None and status in (401, 403):
            line = f"the hub gives no permission to {verb} {name} ({status}): {login}, with a token that may {verb} it"
        elif line is None and status:
            line = f"the hub cannot give {file} of {name} now (it answers {status}): try again later"
        elif line is None and isinstance(error, ValueError):  # of its name
            line = f"a model on the hub is OWNER/NAME; got {repo!r} ({_first_line(error)}): check the name"
        elif line is None and getattr(error, "errno", None) in _NO_SPACE:
            line = f"no space is left for {file} of {name} in {constants.HF_HUB_CACHE}: free some, or set HF_HOME to another disk"
        elif line is None and isinstance(error, OSError) and error.filename:
            line = f"cannot keep {file} of {name}, {error.filename}: {error.strerror}: set HF_HOME to a folder of yours"
        raise WeightsError(
            line
            or f"cannot reach the hub for {name} ({_first_line(error)}): check the connection, or use a network that is here: "
            f"{', '.join(networks_here())}"
        ) from error


def _status(error: Exception) -> int | None:
    """The status of the hub's answer; None if the error is no answer."""
    if isinstance(error, HTTPError):
        return error.code
    found: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return found


def _is_watched() -> bool:
    return sys.stderr.isatty() or in_notebook()


def _named(repo: str, revision: str | None) -> str:
    return f"{repo}@{revision}" if revision else repo


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
