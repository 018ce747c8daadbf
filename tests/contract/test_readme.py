"""What the documents say of the code is true: tests, files and writers that they name exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|yaml|md))`")


def test_every_test_that_the_table_names_exists() -> None:
    """A renamed test takes its row along."""
    named = set(TEST.findall((ROOT / "tests/README.md").read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    sources += "\n".join(path.read_text() for path in (ROOT / "tests/contract").glob("*_exam.py"))

    assert len(named) > 50
    assert sorted(name for name in named if f"def {name}(" not in sources) == []


def test_every_file_that_the_documents_name_exists() -> None:
    """`ARCHITECTURE.md` leaves the source roots out of its paths; the others count from where they stand."""
    for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"):
        roots = [ROOT, ROOT / "libs/lockstep", ROOT / "services/lockstep", (ROOT / document).parent]
        named = set(MODULE.findall((ROOT / document).read_text()))
        missing = [name for name in named if not any((root / name).exists() for root in roots)]
        assert sorted(missing) == [], document


def test_every_link_of_the_documents_leads_somewhere() -> None:
    """To a file of the source, and to a heading in it where one is named."""
    where = ("*.md", "docs/**/*.md", "tests/*.md", "tests/lab/*.md", "proto/*.md", "examples/*.md", "deploy/**/*.md")
    documents = [path for pattern in where for path in ROOT.glob(pattern)]
    assert len(documents) > 20
    broken = []
    for document in documents:
        for link in LINK.findall(BLOCK.sub("", document.read_text("utf-8"))):
            name, _, heading = link.partition("#")
            target = document.parent / name if name else document
            if "://" not in link and (not target.exists() or (heading and heading not in _headings(target))):
                broken.append(f"{document.relative_to(ROOT)}: {link}")
    assert broken == []


def _headings(document: Path) -> set[str]:
    """The names by which a page shows its headings' places."""
    found = HEADING.findall(BLOCK.sub("", document.read_text("utf-8")))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_no_stray_package_hides_the_namespace() -> None:
    """`lockstep` is made of two source roots: one `__init__.py` directly in either would hide the other's modules."""
    assert not (ROOT / "libs/lockstep/__init__.py").exists()
    assert not (ROOT / "services/lockstep/__init__.py").exists()
