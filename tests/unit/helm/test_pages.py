"""What the pages about deployment show works when it is copied from them."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from lockstep.runtime.settings import Settings
from tests.lab.helm import Helm

pytestmark = pytest.mark.timeout(600)
"""The first of all may have to wait until Helm is built."""
ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
ALERT = re.compile(r"- alert: (\w+)")


def blocks(page: str) -> list[dict[str, Any]]:
    """The pieces of YAML in a page."""
    found = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    return [yaml.safe_load(block) for block in found]


VALUES, BESIDE, PERSONS = blocks("docs/install.md")


@pytest.mark.parametrize("more", [{}, BESIDE, *blocks("docs/operations.md"), blocks("docs/slurm-operator.md")[0]])
def test_values_of_the_pages_are_values_of_the_chart(more: dict[str, Any]) -> None:
    """Alone, and with what a page says to add."""
    rendered = Helm().template({**VALUES, **more})
    assert rendered.count("kind: Deployment\n") == 4
    assert "name: lockstep-nats-ops\n" in rendered


@pytest.mark.parametrize("settings", [PERSONS, blocks("README.md")[0]])
def test_settings_of_the_pages_are_settings(settings: dict[str, Any]) -> None:
    """Those of a person's own machine, and the README's."""
    read = msgspec.convert(settings, Settings)
    assert (
        [fault for cluster in read.clusters for fault in cluster.faults()] == read.nats.faults() == read.faults() == []
    )


def test_every_alert_is_in_the_table_with_its_runbook() -> None:
    """An alert that is new needs a line that says what it means."""
    page = (DOCS / "operations.md").read_text("utf-8")
    alerts = ALERT.findall((ROOT / "deploy/alerts/lockstep.rules.yaml").read_text("utf-8"))
    assert len(alerts) > 10
    assert [name for name in alerts if f"| [{name}](runbooks/{name}.md) |" not in page] == []
