"""Files from the hub: the real client, against a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedder.hub_server import TOKEN, Hub, closed_port, reach, running_hub
from facetric.embedder import WeightsError
from facetric.embedder import hub as module
from facetric.embedder.hub import fetched
from processes import command, start, wait, wait_for

REPO, FILE = "owner/birds", "model.safetensors"
CONTENT = os.urandom(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        hub.add(REPO, {FILE: CONTENT, "config.json": b'{"dim": 3}'})
        yield hub


@pytest.fixture
def reached(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """This process reaches the hub; call it to change where that is, to be offline, or to have a token."""

    def change(endpoint: str = hub.endpoint, **options: Any) -> None:
        reach(monkeypatch, endpoint, tmp_path / "hub", **options)

    change()
    return change


def fetch(repo: str, file: str, *options: str) -> None:
    """In a process of its own."""
    print(fetched(repo, file, **dict(option.split("=") for option in options)))


def failure(*arguments: str, **options: str) -> str:
    with pytest.raises(WeightsError) as caught:
        fetched(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("reached")
def test_a_file_is_downloaded_once_and_lies_where_every_program_of_the_hub_finds_it(hub: Hub) -> None:
    from huggingface_hub import try_to_load_from_cache

    path = fetched(REPO, FILE)
    assert path.read_bytes() == CONTENT
    assert str(path) == try_to_load_from_cache(REPO, FILE)
    assert fetched(REPO, FILE) == path
    assert len(hub.asked("GET", "/storage/")) == 1
    assert fetched(REPO, "config.json").read_bytes() == b'{"dim": 3}'


@pytest.mark.usefixtures("reached")
def test_of_a_commit_nothing_is_asked_twice(hub: Hub) -> None:
    commit = hub.repositories[REPO].refs["main"]
    path = fetched(REPO, FILE, revision=commit, sha256=SHA256)
    n_asked = len(hub.requests)
    assert fetched(REPO, FILE, revision=commit, sha256=SHA256) == path
    assert len(hub.requests) == n_asked


@pytest.mark.usefixtures("reached")
def test_a_branch_that_moved_gives_its_newest_file_and_a_commit_its_own(hub: Hub) -> None:
    commit = hub.repositories[REPO].refs["main"]
    fetched(REPO, FILE)
    hub.add(REPO, {FILE: CONTENT[::-1]})
    assert fetched(REPO, FILE).read_bytes() == CONTENT[::-1]
    assert fetched(REPO, FILE, revision=commit).read_bytes() == CONTENT


def test_a_private_file_is_read_with_the_token_that_only_the_hub_sees(hub: Hub, reached) -> None:
    hub.add("owner/secret", {FILE: CONTENT}, access="private")
    assert "there is no owner/secret on the hub, or it is private: check the name; for a private one log in" in failure(
        "owner/secret", FILE
    )
    reached(token=TOKEN)
    assert fetched("owner/secret", FILE).read_bytes() == CONTENT
    assert [token for _, path, _, token in hub.requests if path.startswith("/storage")] == [False]


def test_a_connection_that_breaks_is_taken_up_where_it_broke(hub: Hub, reached, capfd) -> None:
    hub.cut_after, hub.cuts = 1_000_000, 1
    assert fetched(REPO, FILE).read_bytes() == CONTENT
    assert hub.asked("GET", "/storage/") == ["bytes=0-", "bytes=1000000-"]
    assert capfd.readouterr() == ("", "")


def test_a_server_that_takes_no_ranges_is_asked_for_the_whole_file_again(hub: Hub, reached) -> None:
    hub.cut_after, hub.cuts, hub.takes_ranges = 1_000_000, 1, False
    assert fetched(REPO, FILE).read_bytes() == CONTENT


def test_a_download_that_was_killed_is_resumed_by_the_next_process(hub: Hub, tmp_path: Path) -> None:
    hub.pause = 0.1
    environment = hub.environment(tmp_path / "home")
    function = "embedder.test_hub:fetch"
    first = start(REPO, FILE, function=function, log=tmp_path / "log", environment=environment)
    blob = tmp_path / "home" / "hub" / "models--owner--birds" / "blobs" / f"{SHA256}.incomplete"
    wait_for(lambda: blob.is_file() and blob.stat().st_size > 0)
    first.kill()
    assert wait(first) != 0
    n_kept = blob.stat().st_size
    assert 0 < n_kept < len(CONTENT)
    hub.pause = 0
    second = command(REPO, FILE, function=function, environment=environment)
    assert second.returncode == 0, second.stderr
    assert Path(second.stdout.strip()).read_bytes() == CONTENT
    assert hub.asked("GET", "/storage/") == ["bytes=0-", f"bytes={n_kept}-"]
    assert not blob.exists()


def test_two_processes_at_once_download_a_file_once(hub: Hub, tmp_path: Path) -> None:
    hub.pause = 0.02
    environment = hub.environment(tmp_path / "home")
    logs = [tmp_path / "first", tmp_path / "second"]
    both = [start(REPO, FILE, function="embedder.test_hub:fetch", log=log, environment=environment) for log in logs]
    assert [wait(process) for process in both] == [0, 0]
    assert logs[0].read_text() == logs[1].read_text()
    assert hub.asked("GET", "/storage/") == ["bytes=0-"]


def test_a_server_that_stays_away_is_said_with_what_is_here_and_the_rest_comes_later(hub: Hub, reached, monkeypatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)  # between its attempts
    hub.cut_after, hub.cuts = 0, 100
    line = failure(REPO, FILE)
    assert line.startswith(f"the download of {FILE} of {REPO} stopped after 0.0 of 3.0 MB (")
    assert line.endswith("): run it again, it goes on from there")
    hub.cuts = 0
    assert fetched(REPO, FILE).read_bytes() == CONTENT


@pytest.mark.parametrize("given", [None, SHA256], ids=["not given", "given"])
def test_a_file_that_was_damaged_on_its_way_is_refused_and_does_not_stay(hub: Hub, reached, tmp_path: Path, given) -> None:
    hub.is_corrupt = True
    assert "model.safetensors of owner/birds was damaged on its way, its checksum is wrong" in failure(REPO, FILE, sha256=given)
    assert not list((tmp_path / "hub" / "models--owner--birds" / "blobs").iterdir())
    hub.is_corrupt = False
    assert fetched(REPO, FILE, sha256=given).read_bytes() == CONTENT


@pytest.mark.usefixtures("reached")
def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(hub: Hub) -> None:
    path = fetched(REPO, FILE, sha256=SHA256)
    path.resolve().write_bytes(CONTENT[:-1])
    assert fetched(REPO, FILE, sha256=SHA256).read_bytes() == CONTENT
    assert len(hub.asked("GET", "/storage/")) == 2


@pytest.mark.usefixtures("reached")
def test_another_file_than_the_expected_one_is_not_even_downloaded(hub: Hub) -> None:
    assert "is not the one that belongs here, its checksum is another: it was replaced on the hub" in failure(
        REPO, FILE, sha256="0" * 64
    )
    assert hub.asked("GET", "/storage/") == []


@pytest.mark.parametrize(
    ("access", "message"),
    [
        (
            "gated",
            r"owner/kept is for those who accepted its conditions: accept them at http.*/owner/kept, then log in with `hf auth",
        ),
        (
            "forbidden",
            r"the hub gives no permission to read owner/kept \(403\): log in with `hf auth login`, or set HF_TOKEN, with",
        ),
    ],
)
def test_what_one_may_not_read_is_said_with_the_way_to_it(hub: Hub, reached, access: str, message: str) -> None:
    hub.add("owner/kept", {FILE: CONTENT}, access=access)
    with pytest.raises(WeightsError, match=message):
        fetched("owner/kept", FILE)


@pytest.mark.usefixtures("reached")
@pytest.mark.parametrize(
    ("repo", "file", "revision", "message"),
    [
        ("owner/brids", FILE, None, r"^there is no owner/brids on the hub, or it is private: check the name"),
        (REPO, FILE, "f" * 40, rf"^owner/birds has no revision {'f' * 40}, or no longer: http.*/owner/birds/commits lists those"),
        (REPO, FILE, "v9", r"^owner/birds has no revision v9, or no longer"),
        (REPO, "modle.onnx", None, r"^owner/birds has no file modle\.onnx: check the name and the revision$"),
        ("birds//x/../y", FILE, None, r"^a model on the hub is OWNER/NAME; got 'birds//x/../y'"),
        (REPO, "../../../x", None, r"^a model on the hub|^owner/birds has no file"),
    ],
)
def test_what_is_not_there_is_said_with_its_name(repo: str, file: str, revision: str | None, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        fetched(repo, file, revision=revision)


def test_without_a_connection_one_line_comes_at_once_or_the_file_from_the_cache(hub: Hub, reached) -> None:
    path = fetched(REPO, FILE)
    reached(closed_port())
    start = time.monotonic()
    assert fetched(REPO, FILE) == path
    line = failure("owner/other", FILE)
    assert time.monotonic() - start < 5
    assert line.startswith("cannot reach the hub for owner/other (")
    assert line.endswith("): check the connection, or use a network that is here: lite0, lite1, lite2")


def test_a_hub_that_never_answers_is_given_up_after_five_seconds(hub: Hub, reached) -> None:
    hub.silence = 20
    start = time.monotonic()
    assert "(no answer within 5 seconds)" in failure(REPO, FILE)
    assert 4 < time.monotonic() - start < 7


@pytest.mark.usefixtures("reached")
def test_a_hub_with_troubles_of_its_own_is_said_or_the_cache_is_used(hub: Hub) -> None:
    path = fetched(REPO, FILE)
    hub.failing = 503
    assert fetched(REPO, FILE) == path
    line = failure("owner/other", FILE)
    assert line == "the hub cannot give model.safetensors of owner/other now (it answers 503): try again later"


def test_offline_only_the_cache_is_asked(hub: Hub, reached) -> None:
    path = fetched(REPO, FILE)
    n_asked = len(hub.requests)
    reached(is_offline=True)
    assert fetched(REPO, FILE) == path
    assert failure(REPO, "config.json") == (
        "config.json of owner/birds is not in the cache, and HF_HUB_OFFLINE is set: load it once without that"
    )
    assert len(hub.requests) == n_asked


def test_a_full_disk_is_said_and_nothing_is_left_on_it(hub: Hub, tmp_path: Path) -> None:
    environment = hub.environment(tmp_path / "home")
    done = command(REPO, FILE, function="embedder.test_hub:fetch", environment=environment, file_size_limit=1_000_000)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"no space is left for {FILE} of {REPO} in {tmp_path / 'home' / 'hub'}: free some, or set HF_HOME to another" in last
    assert not list((tmp_path / "home").rglob("*.incomplete"))


def test_a_cache_that_cannot_be_written_is_named(hub: Hub, reached, tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("a file")
    assert "cannot keep model.safetensors of owner/birds, " in failure(REPO, FILE)
