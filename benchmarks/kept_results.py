"""Results of a benchmark, one JSON line each, so that a command continues where it was stopped."""

import json


def kept_results(path, settings):
    """The lines of a file. Those of other settings are refused, for one table would mix them; older lines name none, and pass."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for line in lines:
        if line.get("settings", settings) != settings:
            there = line["settings"]
            raise SystemExit(f"{path} has results of other settings, {there} there, {settings} here: choose another --output")
    return lines


def keep(path, line):
    """Append a result, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)
