"""The service over real HTTP: search, vectors, photos, groups and decisions, and who may ask for them."""

import base64
import io
import json
import math
import os
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from facetric.images.decoding import decode_image
from facetric.service import Limits
from facetric.service.server import bound_socket, check_access
from service.running import COLORS, ColorEncoder, client, color_index, color_service, jpeg, opened, served

TOKEN = "a-token-of-twenty-four-characters"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("service")
    color_index(place)
    return place


@pytest.fixture(scope="module")
def web(place):
    limits = Limits(megabytes=1, megapixels=2, seconds=300, requests=16)
    with served(color_service(place, limits=limits)) as address, client(address) as made:
        yield made


@contextmanager
def own_service(tmp_path, *, token=None, hosts=(), **options):
    """A service that a test has for itself."""
    color_index(tmp_path, n_each=4)
    options.setdefault("limits", Limits(seconds=300))  # compilation of the first groups on a busy machine
    with served(color_service(tmp_path, **options), token=token, hosts=hosts) as address, client(address) as made:
        yield made


def change(*rows, removed=()):
    """A change of decisions; rows are (do, ids, name)."""
    ids = sorted({one for row in (*rows, *removed) for one in row[1]})

    def record(do, own, *name):
        return {"do": do, "photos": [ids.index(one) for one in own], "name": "".join(name)}

    return {
        "format": "facetric decisions 1",
        "photos": [{"content": one, "path": ""} for one in ids],
        "decisions": [record(*row) for row in rows],
        "removed": [record(*row) for row in removed],
    }


def vector(data):
    """As a JPEG of the index is embedded: decoded at an eighth of its size."""
    image, _ = decode_image(io.BytesIO(data), Path("query"), at_least=16)
    return ColorEncoder().encode([ColorEncoder.preprocessing.pixels(image)])[0]


def ids_of(web, cluster=0):
    return [photo["id"] for photo in web.get("/clusters").json()["clusters"][cluster]["photos"]]


def test_neighbors_are_those_of_the_index_with_their_labels_and_distances(web, place):
    data = jpeg(COLORS["green"])
    found = web.post("/search", params={"top": 5}, content=data).json()
    (hits,) = opened(place).nearest(vector(data)[None], top=5)
    assert [one["id"] for one in found["neighbors"]] == [hit.entry.content.hex() for hit in hits]
    for one, hit in zip(found["neighbors"], hits, strict=True):
        assert one["similarity"] == pytest.approx(hit.similarity, abs=1e-5)
        assert one["distance"] == pytest.approx(math.sqrt(2 - 2 * one["similarity"]), abs=1e-4)
        assert one["label"] == "green"
        assert one["name"] == f"green/{os.path.basename(hit.entry.path)}"
    assert found["label"] == "green"
    assert not found["unknown"]
    assert found["expected_precision"] is None  # three labels are too few to measure it


def test_of_a_picture_unlike_all_others_the_nearest_are_still_shown(web):
    found = web.post("/search", content=jpeg((200, 200, 30))).json()
    assert found["expected_precision"] is None
    assert len(found["neighbors"]) == 10


def test_the_vector_is_that_of_the_encoder(web):
    data = jpeg()
    found = web.post("/embed", content=data).json()
    np.testing.assert_allclose(found["vector"], vector(data), atol=1e-6)
    assert found["model"] == "c" * 64


def test_what_gathers_is_embedded_together_and_everyone_gets_their_own_answer(tmp_path):
    sizes = []

    class Slow(ColorEncoder):
        def encode(self, pixels):
            import time

            sizes.append(len(pixels))
            time.sleep(0.1)
            return super().encode(pixels)

    labels = [list(COLORS)[i % 3] for i in range(24)]
    with own_service(tmp_path, encoder=Slow()) as web, ThreadPoolExecutor(24) as pool:
        sizes.clear()
        found = list(pool.map(lambda label: web.post("/search", content=jpeg(COLORS[label])).json()["label"], labels))
    assert found == labels
    assert sum(sizes) == 24
    assert max(sizes) > 4


def test_one_request_that_fails_does_not_spoil_those_beside_it(tmp_path):
    class Fragile(ColorEncoder):
        def encode(self, pixels):
            if any(int(one.min()) > 200 for one in pixels):
                raise RuntimeError("white is too much")
            return super().encode(pixels)

    with own_service(tmp_path, encoder=Fragile()) as web, ThreadPoolExecutor(8) as pool:
        pictures = [jpeg(), jpeg((255, 255, 255)), jpeg(), jpeg()] * 2
        statuses = list(pool.map(lambda data: web.post("/search", content=data).status_code, pictures))
        assert statuses == [200, 500, 200, 200] * 2
        assert web.get("/health").json() == {"status": "ok"}


def test_a_photo_is_given_by_id_and_only_while_its_content_is_that_of_the_id(tmp_path):
    with own_service(tmp_path) as web:
        (one, *_) = web.post("/search", content=jpeg()).json()["neighbors"]
        path = tmp_path / "photos" / one["name"]
        found = web.get(f"/photos/{one['id']}")
        assert found.content == path.read_bytes()
        assert found.headers["content-type"] == "image/jpeg"
        assert "immutable" in found.headers["cache-control"]
        small = Image.open(io.BytesIO(web.get(f"/thumbnails/{one['id']}.jpg").content))
        assert max(small.size) == 160
        path.unlink()
        path.symlink_to("/etc/passwd")
        assert web.get(f"/photos/{one['id']}").status_code == 404
        for wrong in ("../../etc/passwd", "%2e%2e%2fphotos", str(path), "0" * 32, "0" * 31, one["id"].upper()):
            assert web.get(f"/photos/{wrong}").status_code in (404, 422)


def test_photos_that_are_added_are_found_and_removed_ones_are_gone(tmp_path):
    with own_service(tmp_path) as web:
        new = tmp_path / "photos" / "new.png"
        Image.new("RGB", (50, 50), (90, 90, 90)).save(new)
        opened(tmp_path).add(new, label="gray")
        assert web.post("/search", content=new.read_bytes()).json()["label"] == "gray"
        one = web.post("/search", content=new.read_bytes()).json()["neighbors"][0]["id"]
        assert web.get(f"/photos/{one}").status_code == 200
        opened(tmp_path).remove(new)
        web.post("/search", content=jpeg())
        assert web.get(f"/photos/{one}").status_code == 404


def test_groups_are_the_colors_and_keep_to_decisions(tmp_path):
    with own_service(tmp_path) as web:
        before = web.get("/clusters").json()
        assert (before["n_photos"], before["n_groups"], before["n_alone"]) == (12, 3, 0)
        first, second = ids_of(web, 0), ids_of(web, 1)
        named = change(("name", [first[0]], "  my\nbirds "), ("same", [first[0], second[0]]), ("reject", [second[1]]))
        assert web.post("/decisions", json=named).json() == {"n_decisions": 3}
        after = web.get("/clusters").json()
        assert sorted(len(one["photos"]) for one in after["clusters"]) == [4, 7]
        assert after["rejected"] == [second[1]]
        assert [one["name"] for one in after["clusters"]] == ["my birds", None]
        web.post("/decisions", json=change(removed=[("same", [first[0], second[0]])]))
        assert sorted(len(one["photos"]) for one in web.get("/clusters").json()["clusters"]) == [3, 4, 4]


def test_decisions_are_a_file_of_facetric_cluster_and_outlive_the_server(tmp_path):
    with own_service(tmp_path) as web:
        ids = ids_of(web)
        web.post("/decisions", json=change(("different", ids[:2]), ("name", [ids[2]], "robin")))
        web.post("/decisions", json=change(("different", ids[:2])))  # sent again: made once, and counts from now on
        kept = opened(tmp_path).decisions()
        assert [decision.do for decision in kept.decisions] == ["name", "different"]
        assert web.get("/decisions").json()["decisions"][0]["name"] == "robin"
    with served(color_service(tmp_path, limits=Limits(seconds=300))) as address, client(address) as web:
        assert len(web.get("/decisions").json()["decisions"]) == 2
        assert len(web.get("/clusters").json()["clusters"]) == 4


def test_what_contradicts_or_means_nothing_is_refused_and_not_written(tmp_path):
    with own_service(tmp_path) as web:
        ids = ids_of(web)
        web.post("/decisions", json=change(("same", ids[:2])))
        before = opened(tmp_path).decisions()
        contradiction = web.post("/decisions", json=change(("different", ids[:2])))
        assert contradiction.status_code == 409
        assert "contradict" in contradiction.json()["detail"]
        assert web.post("/decisions", json=change(("reject", ["0" * 32]))).status_code == 422
        assert web.post("/decisions", json=change(("same", ids[:1]))).status_code == 422
        assert web.post("/decisions", json=change(("name", ids[:1], "x" * 201))).status_code == 422
        wrong = change(("same", ids[:2]))
        wrong["decisions"][0]["photos"] = [0, 7]
        assert web.post("/decisions", json=wrong).status_code == 422
        assert web.post("/decisions", content=json.dumps(change()).encode()).status_code == 422  # not sent as JSON
        assert opened(tmp_path).decisions() == before


def test_two_servers_of_one_index_keep_the_decisions_of_both(tmp_path):
    with own_service(tmp_path) as web, served(color_service(tmp_path, limits=Limits(seconds=300))) as address:
        ids = ids_of(web)
        web.post("/decisions", json=change(("same", ids[:2])))
        with client(address) as other:
            assert other.post("/decisions", json=change(("name", [ids[2]], "robin"))).json() == {"n_decisions": 2}
        assert [one["do"] for one in web.get("/decisions").json()["decisions"]] == ["same", "name"]
        assert web.get("/clusters").json()["clusters"][0]["name"] == "robin"


def test_a_decision_that_cannot_be_written_is_not_acknowledged(tmp_path):
    with own_service(tmp_path) as web:
        ids = ids_of(web)
        with closing(sqlite3.connect(tmp_path / "colors.index" / "collection.sqlite")) as connection:
            refusal = "BEFORE INSERT ON about WHEN NEW.name = 'decisions' BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
            connection.execute(f"CREATE TRIGGER full {refusal}")
        assert web.post("/decisions", json=change(("same", ids[:2]))).status_code == 503
        assert web.get("/decisions").json()["decisions"] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Token {TOKEN}"}, 401),
        ({"Authorization": b"Basic " + base64.b64encode(f"anyone:{TOKEN}".encode())}, 200),
        ({"Authorization": "Basic ===="}, 401),
        ({"Authorization": b"Bearer \xff\xfe"}, 401),
    ],
)
def test_with_a_token_nothing_but_health_is_answered_without_it(place, tmp_path, headers, status, guarded):
    assert guarded.get("/clusters", headers=headers).status_code == status
    assert guarded.post("/search", content=jpeg(), headers=headers).status_code == status
    assert guarded.get("/", headers=headers).status_code == status
    assert guarded.get("/openapi.json", headers=headers).status_code == status
    assert guarded.get("/health", headers=headers).status_code == 200
    asked = guarded.get("/", headers=headers).headers.get("www-authenticate", "")
    assert asked.startswith("Basic ") == (status == 401)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    place = tmp_path_factory.mktemp("guarded")
    color_index(place, n_each=3)
    with (
        served(color_service(place, limits=Limits(seconds=300)), token=TOKEN, hosts=["photos.example.org"]) as address,
        client(address) as made,
    ):
        yield made


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::1", "photos"])
def test_another_name_is_refused_as_dns_rebinding_would_send_it(guarded, host):
    headers = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/clusters", headers=headers).status_code == 421
    assert guarded.get("/health", headers=headers).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "10.0.0.7", "photos.example.org"])
def test_its_own_names_and_addresses_are_answered(guarded, host):
    assert guarded.get("/health", headers={"Host": host}).status_code == 200


def test_a_page_of_another_site_changes_nothing(web):
    ids = ids_of(web)
    own = {"Origin": str(web.base_url).rstrip("/")}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[", "http://localhost"):
        assert web.post("/decisions", json=change(("same", ids[:2])), headers={"Origin": origin}).status_code == 403
    assert web.post("/decisions", json=change(("same", ids[:2])), headers=own).status_code == 200
    assert web.post("/decisions", json=change(removed=[("same", ids[:2])]), headers=own).status_code == 200
    answer = web.options("/decisions", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_forbids_guessing_framing_and_embedding(web):
    for path in ("/", "/groups", "/clusters", "/nothing", "/health", f"/photos/{ids_of(web)[0]}", "/openapi.json"):
        headers = web.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
    for path in ("/", "/groups"):
        text = web.get(path).text
        assert "default-src 'none'; script-src 'sha256-" in text
        assert "<b>blue" not in text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "photos.example.org", ""])
def test_an_address_that_others_reach_demands_a_token(host):
    with pytest.raises(ValueError, match="can be reached from other machines: set a token"):
        check_access(host, None)
    with pytest.raises(ValueError, match="at least 16"):
        check_access(host, "short")
    check_access(host, TOKEN)


def test_answers_are_sent_without_waiting_for_an_acknowledgement_of_their_header():
    with bound_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # what asyncio asks before it sets TCP_NODELAY: 40 ms a request


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "localhost"])
def test_a_loopback_address_needs_none(host):
    check_access(host, None)


def test_the_openapi_document_names_every_address(web):
    paths = web.get("/openapi.json").json()["paths"]
    assert {(path, method) for path, found in paths.items() for method in found} == {
        ("/search", "post"),
        ("/embed", "post"),
        ("/health", "get"),
        ("/photos/{photo_id}", "get"),
        ("/thumbnails/{photo_id}.jpg", "get"),
        ("/clusters", "get"),
        ("/decisions", "get"),
        ("/decisions", "post"),
    }
    assert json.dumps(paths).count("http") == 0


def test_a_browser_waits_on_a_page_while_groups_are_made_and_reads_why_there_are_none(tmp_path):
    made = threading.Event()

    class Waiting(ColorEncoder):
        @property
        def pair_model(self):
            made.wait(60)
            raise ValueError("<nothing> to learn from")

    color_index(tmp_path, n_each=3)
    service = color_service(tmp_path, encoder=Waiting(), limits=Limits(seconds=1))
    with served(service) as address, client(address) as web:
        waiting = web.get("/groups")
        assert (waiting.status_code, waiting.headers["refresh"]) == (503, "3")
        assert web.post("/search", content=jpeg()).status_code == 200  # meanwhile
        assert web.get("/clusters").status_code == 503
        made.set()
        told = web.get("/groups")
        assert told.status_code == 409
        assert "<p>&lt;nothing&gt; to learn from</p>" in told.text
        assert web.get("/clusters").json() == {"detail": "<nothing> to learn from"}


def test_top_and_at_least_mean_over_http_what_they_mean_in_python(web, place):
    data, index = jpeg(COLORS["green"]), opened(place)
    (match,) = index.search(vector(data), top=500)
    found = web.post("/search", params={"top": 500}, content=data).json()["neighbors"]
    assert [one["id"] for one in found] == [hit.entry.content.hex() for hit in match.hits]
    assert len(found) == len(index) == 30
    assert [one["is_similar_enough"] for one in found] == [hit in match.near for hit in match.hits]
    for at_least in (-1, 0.9, 0.99999):
        (match,) = index.search(vector(data), top=500, at_least=at_least)
        found = web.post("/search", params={"top": 500, "at_least": at_least}, content=data).json()
        assert [one["id"] for one in found["neighbors"]] == [hit.entry.content.hex() for hit in match.hits]
        assert all(one["is_similar_enough"] for one in found["neighbors"])
    for wrong in ({"top": 0}, {"top": "many"}, {"at_least": 2}, {"at_least": "high"}):
        assert web.post("/search", params=wrong, content=data).status_code == 422
