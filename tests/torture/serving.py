"""Decisions sent to a running service over HTTP. Its client notes each one that was acknowledged: none of those may be lost."""

from pathlib import Path

N_DECISIONS = 12


def decide(index, model, notes):
    """In a child of the forge: a service of its own, with the errors of `facetric serve`, and the decisions not yet noted."""
    import typer

    from facetric.cli.errors import one_line_errors

    try:
        with one_line_errors("serve"):
            _decide(Path(index), model, Path(notes))
    except typer.Exit as end:
        raise SystemExit(end.exit_code) from None


def _decide(index, model, notes):
    from facetric.embedder import load
    from facetric.service import Service
    from service.running import client, served

    loaded = load(model)
    service = Service(loaded.index(index), loaded, lambda decided: loaded.cluster_index(index, decisions=decided))
    with served(service) as address, client(address) as web, notes.open("a+") as acknowledged:
        acknowledged.seek(0)
        noted = acknowledged.read().split("\n")[:-1]
        kept = [decision.name for decision in service.decisions.decisions.decisions]
        assert kept[: len(noted)] == noted, f"acknowledged {noted}, kept {kept}"
        assert len(kept) <= len(noted) + 1, f"acknowledged {noted}, kept {kept}"  # the last may be kept and its answer lost
        contents = sorted(service.engine.catalog.paths)
        for i in range(len(noted), N_DECISIONS):
            row = {"do": "name", "photos": [0], "name": f"bird{i}"}
            photos = [{"content": contents[i], "path": ""}]
            answer = web.post("/decisions", json={"format": "facetric decisions 1", "photos": photos, "decisions": [row]})
            if answer.status_code == 503:  # no room, say
                raise OSError(answer.text)
            assert answer.status_code == 200, answer.text
            acknowledged.write(f"bird{i}\n")
            acknowledged.flush()
