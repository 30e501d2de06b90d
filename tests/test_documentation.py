"""Every Python block of the README and of the docs is executed, block after block, file by file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_the_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    text = page.read_text()
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match.group(1), str(page), "exec"), namespace)
