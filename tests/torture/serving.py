"""Decisions sent to a running service over HTTP. Its client notes each one that was acknowledged: none of those may be lost."""

from pathlib import Path

N_DECISIONS = 12


def decide(index, model, notes):
    """In a child of the forge: a service of its own, and whatever decisions it was not sent before a kill."""
    from facetric.groups import Decisions
    from facetric.inference import load
    from facetric.service import Service
    from service.running import client, served

    kept = Path(index) / "decisions.json"
    names = [decision.name for decision in Decisions.read(kept).decisions] if kept.exists() else []
    noted = Path(notes).read_text().split("\n")[:-1] if Path(notes).exists() else []
    assert names[: len(noted)] == noted, f"acknowledged {noted}, kept {names}"
    assert len(names) <= len(noted) + 1, f"acknowledged {noted}, kept {names}"  # the last one may be kept, and its answer lost
    loaded = load(model)
    service = Service(loaded.index(index), loaded, lambda decided: loaded.cluster_index(index, decisions=decided))
    with served(service) as address, client(address) as web, Path(notes).open("a") as acknowledged:
        contents = sorted(service.engine.catalog.paths)
        for i in range(len(noted), N_DECISIONS):
            row = {"do": "name", "photos": [0], "name": f"bird{i}"}
            photos = [{"content": contents[i], "path": ""}]
            answer = web.post("/decisions", json={"format": "facetric decisions 1", "photos": photos, "decisions": [row]})
            assert answer.status_code == 200, answer.text
            acknowledged.write(f"bird{i}\n")
            acknowledged.flush()
