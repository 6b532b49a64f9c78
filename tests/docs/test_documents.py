"""What the documents show is run; what they link to is there; the exit codes they list are the code's."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk import errors
from falkirk.cli.main import falkirk
from falkirk.cli.words import PICTURE, WORDS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("document", "examples"), [("dsl", 50), ("avro", 10), ("protobuf", 10), ("testing", 10), ("provenance", 2)]
)
def test_flows_do_what_the_documents_show(document: str, examples: int) -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / f"{document}.md"), module_relative=False, report=True)
    assert tried > examples
    assert failed == 0


def test_the_first_flow_of_the_readme_can_be_planned() -> None:
    found = blocks(DOCUMENTS[0], "python")
    assert found
    for code in found:
        namespace: dict[str, object] = {}
        exec(code, namespace)
        namespace["flow"].plan()  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_picture_of_all_words_is_that_of_the_command_line() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    assert PICTURE in text
    for word in WORDS:
        assert f"**{word}**" in text
        assert re.search(rf"\b{word}\b", PICTURE), f"the picture lacks {word}"
    for command in (["--help"], ["explain", "--help"]):
        shown = CliRunner().invoke(falkirk, command).output
        assert all(re.search(rf"\b{word}\b", shown) for word in WORDS), command


@pytest.mark.parametrize(
    "document", ["README.md", "docs/dsl.md", "docs/running.md", "docs/batch.md", "docs/testing.md"]
)
def test_words_are_defined_before_they_are_used(document: str) -> None:
    text = re.sub(r"[A-Za-z_.`]*\[[^\]]*\]\((?:docs/)?concepts\.md\)", "LINK", (ROOT / document).read_text())
    text = re.sub(r"^A flow is split into .*?LINK", "LINK", text, flags=re.DOTALL | re.MULTILINE)
    used = re.search(rf"\b(?:{'|'.join(WORDS)})s?\b", text)
    assert used is not None
    assert text.index("LINK") < used.start(), text[used.start() - 40 : used.end() + 20]


def test_exit_codes_are_those_of_the_errors() -> None:
    listed = dict(re.findall(r"^\| (\d+) \| `(\w+)`", (ROOT / "docs" / "running.md").read_text(), re.MULTILINE))
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.FalkirkError)]
    for kind in kinds:
        if kind is not errors.FalkirkError:
            assert str(kind.exit_code) in listed
    for code, name in listed.items():
        if hasattr(errors, name):
            assert getattr(errors, name).exit_code == int(code)
