"""Whatever is sent, the service refuses it with a line, stays as it is, and answers the next request."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from facetric.service import Limits
from service.hostile import mutations, pictures, streams
from service.running import ColorEncoder, client, color_index, color_service, jpeg, served


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    color_index(place, n_each=3)
    return place


@pytest.fixture(scope="module")
def address(place):
    with served(color_service(place, limits=Limits(megabytes=1, megapixels=4, seconds=60, requests=16))) as address:
        yield address


@pytest.fixture
def web(address):
    with client(address) as made:
        yield made


def memory():
    """Megabytes that this process holds, of which the server is a thread."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1000


def files_below(place):
    return {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file() and "sqlite-" not in path.name}


@pytest.fixture
def unchanged(place, web, monkeypatch, tmp_path):
    """Nothing is written, and the service still works."""
    monkeypatch.chdir(tmp_path)
    before = files_below(place)
    yield
    assert files_below(place) == before
    assert list(tmp_path.iterdir()) == []
    assert web.post("/search", content=jpeg()).json()["label"] == "red"


@pytest.mark.usefixtures("unchanged")
def test_hostile_pictures_are_refused_with_a_line(web, tmp_path):
    marker = tmp_path / "unpickled"
    statuses = {name: web.post("/search", content=data) for name, data in pictures(marker).items()}
    for name, answer in statuses.items():
        assert answer.status_code in (200, 413, 422), name
        if answer.status_code != 200:
            assert answer.json()["detail"].count("\n") == 0
    honest = {name for name, answer in statuses.items() if answer.status_code == 200}
    assert honest <= {name for name in statuses if "and more" in name or "cut at" in name} | {
        "many frames",
        "text bomb",
        "profile bomb",
    }
    assert "many frames" in honest
    assert not marker.exists()


@pytest.mark.usefixtures("unchanged")
def test_bombs_are_refused_before_they_are_decoded(web, tmp_path):
    found = pictures(tmp_path / "x")
    web.post("/search", content=jpeg())
    before = memory()
    for name in ("bomb by header", "bomb of 900 KB", "bomb in color", "a line of pixels", "huge gif", "huge ppm", "huge tile"):
        start = time.perf_counter()
        answer = web.post("/search", content=found[name])
        assert answer.status_code == 422, name
        assert time.perf_counter() - start < 10
    assert memory() - before < 30
    refusal = web.post("/search", content=found["bomb in color"]).json()["detail"]
    assert refusal == "the image has 7,000 × 7,000 pixels; an image may have 4,000,000 at most: shrink it first"


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("n", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_pictures_with_changed_bytes_are_opened_or_refused(web, n):
    for data in mutations(n):
        assert web.post("/search", content=data).status_code in (200, 422)


@pytest.mark.usefixtures("unchanged")
def test_bytes_that_are_not_http_end_their_connection_only(address):
    host = address.removeprefix("http://")
    for name, data in streams(host).items():
        with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=20) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65536)
            except OSError:  # it was closed before all was sent
                continue
            assert not answer or int(answer.split()[1]) in {*range(400, 500), 200} - {500}, name
            assert b"root:" not in answer


@pytest.mark.usefixtures("unchanged")
def test_forms_and_too_many_bytes_are_refused(web):
    form = web.post("/search", files={"picture": jpeg()})
    assert form.status_code == 415
    assert "--data-binary" in form.json()["detail"]
    large = web.post("/search", content=bytes(1_000_001))
    assert large.status_code == 413
    assert "1 MB" in large.json()["detail"]
    chunks = web.post("/search", content=(bytes(100_000) for _ in range(30)))  # its length is not announced
    assert chunks.status_code == 413
    for top in ("0", "1001", "x", "1e9", "-1"):
        assert web.post("/search", params={"top": top}, content=jpeg()).status_code == 422


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("n_examples", [8, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")  # schemathesis's own
def test_what_schemathesis_makes_of_the_openapi_document_gives_no_error_of_the_server(address, n_examples):
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    calm = settings(
        max_examples=n_examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    counts = []
    for operation in [found.ok() for found in schema.get_all_operations()]:
        for mode in GenerationMode:

            @calm
            @given(case=operation.as_strategy(generation_mode=mode))
            def call(case):
                answer = case.call(base_url=address)
                counts.append(answer.status_code)
                case.validate_response(answer, checks=checks)

            try:
                call()
            except Unsatisfiable:  # an address without parameters has no wrong ones
                continue
    assert len(counts) > 8 * n_examples
    assert max(counts) < 500


def test_requests_beyond_the_limit_are_told_to_come_back_and_slow_ones_are_cut_off(tmp_path):
    class Slow(ColorEncoder):
        wait = 0.0

        def encode(self, pixels):
            time.sleep(self.wait)
            return super().encode(pixels)

    encoder = Slow()
    color_index(tmp_path, n_each=3)
    service = color_service(tmp_path, encoder=encoder, limits=Limits(seconds=1, requests=4))
    with served(service) as address, client(address) as web, ThreadPoolExecutor(12) as pool:
        encoder.wait = 0.4
        answers = list(pool.map(lambda _: web.post("/search", content=jpeg()), range(12)))
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {200, 429}
        assert 4 <= statuses.count(200) < 12
        assert {answer.headers["retry-after"] for answer in answers if answer.status_code == 429} == {"1"}
        encoder.wait = 1.5
        late = web.post("/search", content=jpeg())
        assert late.status_code == 503
        assert "more than 1 s" in late.json()["detail"]
        encoder.wait = 0
        assert web.get("/health").status_code == 200
        time.sleep(1.0)  # until the engine has finished what nobody waits for any more
        assert web.post("/search", content=jpeg()).status_code == 200
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as dripping:  # a body that never ends
            dripping.sendall(f"POST /search HTTP/1.1\r\nHost: {host}\r\nContent-Length: 500\r\n\r\nabc".encode())
            assert b" 503 " in dripping.recv(1000)


@pytest.mark.parametrize("n", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_stays_as_it_is(web, n):
    data, ids = jpeg(), []
    for i in range(n):
        if i == n // 3:
            before = memory()
        answer = web.post("/search", content=data if i % 3 else data[: 10 * (i % 50)])
        if answer.status_code == 200:
            ids = [one["id"] for one in answer.json()["neighbors"]]
        if i % 20 == 0 and ids:
            web.get(f"/photos/{ids[i % len(ids)]}")
    assert memory() - before < 25
