"""The docs are true: every Python block runs, commands parse, links lead somewhere, and the site builds and needs no network."""

import functools
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from facetric.cli.main import app
from facetric.losses import LOSSES
from facetric.runs.config import TABLES

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)[^)]*\)")
UsageError = typer.BadParameter.__base__  # click's, wherever typer keeps it


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, languages):
    return [match for match in FENCE.finditer(page.read_text()) if match["language"] in languages]


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",  # Lightning, of its own use of torch
    "ignore:The 'train_dataloader' does not have many workers",  # Lightning's advice on machines with many cores
    "ignore:Converting a tensor with requires_grad=True to a scalar",  # pytorch-metric-learning, for its progress bar
)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, ["python"])], ids=name_of)
def test_the_examples_of_the_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("facetric.losses.LOSSES", dict(LOSSES))  # a page that adds a loss adds it for itself
    namespace = {"__name__": "__main__"}
    for match in blocks(page, ["python"]):
        line = match.string[: match.start("code")].count("\n")
        exec(compile("\n" * line + match["code"], str(page), "exec"), namespace)


def shell_lines(page):
    """Every command of the page as words, and whether it stands in a block, where it has to be complete."""
    for match in blocks(page, ["", "sh", "bash", "console"]):
        is_script = match["language"] in ("sh", "bash")  # other blocks may hold output too
        for line in match["code"].replace("\\\n", " ").splitlines():
            if re.search(r"\b(facetric|make) ", line) and (is_script or re.match(r"\$ |facetric [-a-z]+(\s|$)", line)):
                yield shlex.split(line.removeprefix("$ "), comments=True), True
    for inline in INLINE.findall(FENCE.sub("", page.read_text())):
        if re.match(r"(\S*/|.* -m )?facetric\s|make\s", inline):
            yield shlex.split(inline), False


def facetric_commands():
    """(page, arguments, complete) of every `facetric …` and `… -m facetric …`."""
    for page in PAGES:
        for words, complete in shell_lines(page):
            for i, word in enumerate(words[:-1]):
                if word.rpartition("/")[2] == "facetric" and (i == 0 or words[i - 1] == "-m"):
                    end = next((j for j, later in enumerate(words) if j > i and later in ("|", ">", "&&", ";", "&")), len(words))
                    yield name_of(page), words[i + 1 : end], complete


def parse(command, arguments, complete):
    """Let the command line parser read the arguments, and run nothing."""
    if arguments[:1] == ["--install-completion"]:  # the parser would do it
        assert any(arguments[0] in parameter.opts for parameter in command.params)
        return
    try:
        context = command.make_context("facetric", list(arguments))
    except typer.Exit:  # --help, --version
        return
    except UsageError as error:
        if type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError") and not complete:
            return
        raise
    if hasattr(command, "commands"):
        _, subcommand, rest = command.resolve_command(context, [*arguments])
        parse(subcommand, rest, complete)


@functools.cache
def facetric_command():
    return typer.main.get_command(app)


@pytest.mark.parametrize(
    ("page", "arguments", "complete"),
    [pytest.param(*found, id=f"{found[0]}:{' '.join(found[1])}") for found in facetric_commands()],
)
def test_the_command_exists_with_these_options(page, arguments, complete):
    parse(facetric_command(), arguments, complete)
    for option, value in pairwise(arguments):
        if option == "--set":
            table, _, key = value.partition("=")[0].partition(".")
            assert key.split(".")[0] in TABLES[table].known_keys()
    for argument in arguments:
        if argument.startswith("configs/"):
            assert (ROOT / argument).is_file()


def test_a_command_or_an_option_that_does_not_exist_is_found():
    for wrong in [
        "trian configs/glyphs.toml",
        "evaluate runs/a --vews 2",
        "resume",
        "resume a b",
        "data chek photos",
        "--verison",
    ]:
        with pytest.raises(UsageError):
            parse(facetric_command(), wrong.split(), True)


def test_every_target_of_make_that_the_docs_name_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for page in PAGES for words, _ in shell_lines(page) if words[0] == "make"}
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_of_the_repository(page):
    text = INLINE.sub("", FENCE.sub("", page.read_text()))
    assert [target for target in LINK.findall(text) if not (page.parent / target).exists()] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},  # an advertisement, not a warning
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_builds_and_loads_nothing_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loaded = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>""")
    assert [found for page in pages for found in loaded.findall(page.read_text())] == []
    fetched = re.compile(r"""(?:url\(|@import )["']?(?:https?:)?//""")
    assert [sheet for sheet in site.rglob("*.css") if fetched.search(sheet.read_text())] == []


@pytest.mark.parametrize(
    "package",
    [*("clustering", "embedder", "evaluation", "images", "losses", "metrics", "photos", "report", "runs", "service", "training")],
)
def test_every_public_name_is_in_the_reference(site, package):
    module = importlib.import_module(f"facetric.{package}")
    described = [
        name for name in module.__all__ if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))
    ]
    page = (site / "api" / f"{package}.html").read_text()
    assert [name for name in described if not re.search(rf'id="facetric\.{package}\.(\w+\.)*{name}"', page)] == []
