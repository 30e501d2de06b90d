"""Pages of the site that are not in docs/: README, ARCHITECTURE, CONTRIBUTING, CHANGELOG and the lists of commands and settings.

Their links are written for the repository, where they stand; here they are turned toward the site. A link from any page to a
file of the repository that is no page of the site, such as a benchmark, becomes its text.
"""

import html
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from settings_page import settings_table

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")
COMPLETION = "`facetric --install-completion` teaches your shell (bash, zsh, fish, PowerShell) the commands and options."
IMAGE = re.compile(r"(?<=\]\()docs/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, "settings.md", content=f"# Settings\n\n{settings_table()}"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = next((source for source, name in PAGES.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def turned(link: re.Match[str]) -> str:
        target = normpath(str(PurePosixPath(here).parent / link["target"]))  # as seen from the root of the repository
        on_site = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
        if on_site is None and (ROOT / target).exists():
            return link["text"]
        if on_site is None:
            return link[0]  # a dead link: the strict build says so
        return f"[{link['text']}]({relpath(on_site, str(PurePosixPath(page.file.src_uri).parent))}{link['anchor'] or ''})"

    markdown = LINK.sub(turned, markdown)
    return IMAGE.sub("", markdown) if here in PAGES else markdown


def commands() -> str:
    """The help of every command as Markdown, written by typer."""
    typer = [sys.executable, "-m", "typer", "facetric.cli.main", "utils", "docs", "--name", "facetric"]
    text = html.unescape(subprocess.run(typer, check=True, capture_output=True, encoding="utf-8").stdout)
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # lists of truncated sentences; the table of contents is better
    return text.replace("# `facetric`\n", f"# Commands\n\n{COMPLETION}\n", 1)
