"""What the chart takes from the source is what the source says."""

import tomllib
from pathlib import Path

import pytest
import yaml

from tests.deploy.__main__ import CHART, COPIED, DEPLOY, ROOT, files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_what_is_committed_is_what_would_be_written(path: Path) -> None:
    """`make charts` writes it anew."""
    assert path.read_text(encoding="utf-8") == files()[path]


def test_nothing_is_left_in_the_chart_that_the_source_no_longer_has() -> None:
    """A file that was renamed in the source would else be installed under both names."""
    folders = {pattern.partition("/")[0] for pattern in COPIED}
    there = {path.relative_to(CHART / "files") for name in folders for path in (CHART / "files" / name).rglob("*.*")}

    assert there == {path.relative_to(DEPLOY) for pattern in COPIED for path in DEPLOY.glob(pattern)}


def test_the_chart_has_the_products_version() -> None:
    """Its image is that of this version unless a value says otherwise."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert (chart["version"], chart["appVersion"]) == (version, version)
