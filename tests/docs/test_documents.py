"""What the documents show is run; what they link to is there; the reference lists what the code has."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import falkirk as fk
from falkirk import errors
from falkirk.cli.main import falkirk
from falkirk.cli.words import PICTURE, WORDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "docker" / "README.md", *PAGES]
LONGEST = 1500
"""Words of a page outside the reference."""
CONCEPTS = DOCS / "concepts" / "index.md"
HELPER = "dsl.md#the-helper-of-the-examples"


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def helper() -> dict[str, object]:
    """What the examples of the pages about operators have in common, as docs/dsl.md shows it."""
    [code] = [block for block in blocks(DOCS / "dsl.md", "pycon") if "def output(" in block]
    found: dict[str, object] = {}
    for example in doctest.DocTestParser().get_examples(code):
        exec(example.source, found)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=named)
def test_flows_do_what_the_documents_show(page: Path) -> None:
    given = helper() if HELPER in page.read_text() else {}
    failed, tried = doctest.testfile(str(page), module_relative=False, report=True, globs=given)
    assert tried > 0
    assert failed == 0


def test_pages_have_examples() -> None:
    assert len([page for page in PAGES if blocks(page, "pycon")]) > 4


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", DOCS / "tutorial" / "index.md", *sorted((DOCS / "coming-from").iterdir())],
    ids=named,
)
def test_whole_flows_of_the_documents_can_be_planned(document: Path) -> None:
    found = [block for block in blocks(document, "python") if block.startswith("import falkirk")]
    assert found
    for code in found:
        namespace: dict[str, object] = {}
        exec(code, namespace)
        namespace["flow"].plan()  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "reference"], ids=named)
def test_no_page_is_long(page: Path) -> None:
    assert len(page.read_text().split()) <= LONGEST


@pytest.mark.slow
def test_the_site_builds_and_every_link_and_anchor_of_it_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = {
        part: (tmp_path / "reference" / part / "index.html").read_text() for part in ("cli", "settings", "metrics")
    }
    assert "falkirk dlq replay" in shown["cli"]
    assert "FALKIRK_STATE_DIR" in shown["settings"]
    assert "falkirk_lag_records" in shown["metrics"]
    assert not re.search(r"<(?:link|script)[^>]*(?:href|src)=\"https?://(?!\S*canonical)", shown["cli"])


def test_the_picture_of_all_words_is_that_of_the_command_line() -> None:
    text = CONCEPTS.read_text()
    assert PICTURE in text
    for word in WORDS:
        assert f"**{word}**" in text
        assert re.search(rf"\b{word}\b", PICTURE), f"the picture lacks {word}"
    for command in (["--help"], ["explain", "--help"]):
        shown = CliRunner().invoke(falkirk, command).output
        assert all(re.search(rf"\b{word}\b", shown) for word in WORDS), command


@pytest.mark.parametrize(
    "document", ["README.md", "docs/dsl.md", "docs/how-to/batch-on-spark.md", "docs/how-to/test-a-flow.md"]
)
def test_words_are_defined_before_they_are_used(document: str) -> None:
    text = re.sub(r"[A-Za-z_.`]*\[[^\]]*\]\([./a-z]*concepts/index\.md\)", "LINK", (ROOT / document).read_text())
    text = re.sub(r"^A flow is split into .*?LINK", "LINK", text, flags=re.DOTALL | re.MULTILINE)
    used = re.search(rf"\b(?:{'|'.join(WORDS)})s?\b", text)
    assert used is not None
    assert text.index("LINK") < used.start(), text[used.start() - 40 : used.end() + 20]


def test_the_reference_has_every_name_that_is_offered() -> None:
    command = [sys.executable, ROOT / "tools" / "reference.py", "python"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "line: str" not in told  # a parameter that users do not give
    told += (ROOT / "docs" / "reference" / "python.md").read_text()
    assert [name for name in fk.__all__ if not re.search(rf"^## {name}\b|`fk\.{name}\b", told, re.MULTILINE)] == []


def test_the_reference_lists_every_exit_code() -> None:
    command = [sys.executable, ROOT / "tools" / "reference.py", "errors"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = dict(re.findall(r"^\| (\d+) \| `(\w+)`", shown, re.MULTILINE))
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.FalkirkError)]
    assert {str(kind.exit_code) for kind in kinds if kind is not errors.FalkirkError} | {"10"} == listed.keys()
