"""Alerts, runbooks, dashboards and the page of metrics are true to the metrics and to each other."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.cli.completion import commands_of
from lockstep.cli.parser import build
from lockstep.cli.standalone import SERVICES
from tests.observability.__main__ import DASHBOARDS, files
from tests.observability.page import series

ROOT = Path(__file__).resolve().parents[3]
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/alerts/lockstep.rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
NAMES = sorted({rule["alert"] for rule in ALERTS})
NAME = re.compile(r"\blockstep_[a-z_]+\b")
SECTIONS = ("What is safe meanwhile", "How to look", "What to do")


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_what_is_committed_is_what_would_be_written(path: Path) -> None:
    """`python -m tests.observability` writes it anew."""
    assert path.read_text(encoding="utf-8") == files()[path]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_asks_for_metrics_that_there_are(name: str) -> None:
    """And every panel says what it shows, in which unit."""
    asked = {metric for query in DASHBOARDS[name].queries() for metric in NAME.findall(query.expr)}
    shown = json.loads((ROOT / f"deploy/dashboards/{name}.json").read_text())
    panels = [panel for panel in shown["panels"] if panel["type"] != "row"]

    assert asked - series() == set()
    assert [p["title"] for p in panels if not (p["description"] and p["fieldConfig"]["defaults"]["unit"])] == []
    assert {target["datasource"]["uid"] for panel in panels for target in panel["targets"]} == {"${datasource}"}


def test_panels_do_not_lie_over_each_other() -> None:
    """Each has its own place on the page."""
    for path in (ROOT / "deploy/dashboards").glob("*.json"):
        cells: list[tuple[int, int]] = []
        for panel in json.loads(path.read_text())["panels"]:
            at = panel["gridPos"]
            cells += [(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])]
        assert len(cells) == len(set(cells)), path.name
        assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    """It waits before it fires, and asks for metrics that there are."""
    assert rule["for"]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    assert set(NAME.findall(rule["expr"])) - series() == set()


def test_a_service_that_nobody_leads_is_missed_whichever_it_is() -> None:
    """Also when no process of it is scraped, so that nothing says its name."""
    rule = next(rule for rule in ALERTS if rule["alert"] == "LockstepNoLeader")
    missed = re.findall(r'absent\(lockstep_leading\{service="([a-z-]+)"\}\)', rule["expr"])

    assert sorted(missed) == sorted(name.replace("_", "-") for name in SERVICES)


def test_each_alert_has_its_runbook_and_its_test_and_there_are_no_others() -> None:
    """What was renamed is renamed everywhere."""
    assert sorted(path.stem for path in (ROOT / "docs/runbooks").glob("*.md")) == NAMES
    assert sorted(path.stem for path in (ROOT / "deploy/alerts/tests").glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_alerts_test_sees_it_fire_and_not_fire(name: str) -> None:
    """One that always fires, and one that never does, would both pass by halves."""
    tests = yaml.safe_load((ROOT / f"deploy/alerts/tests/{name}.yaml").read_text())["tests"]
    expected = [case["exp_alerts"] for test in tests for case in test["alert_rule_test"] if case["alertname"] == name]

    assert any(expected)
    assert not all(expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_says_what_is_safe_how_to_look_and_what_to_do(name: str) -> None:
    """With commands, metrics and pages that there are."""
    text = (ROOT / f"docs/runbooks/{name}.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"^lockstep ([a-z]+)", text, re.MULTILINE)) | set(re.findall(r"`lockstep ([a-z]+)", text))
    links = re.findall(r"\]\(([A-Za-z]+)\.md\)", text)

    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(SECTIONS)
    assert commands - {command.name for command in commands_of(build())} - {"standalone"} == set()
    assert {
        name for name in re.findall(r"`(lockstep_[a-z_]+)`", text) if not {name, f"{name}_count"} & series()
    } == set()
    assert set(links) - set(NAMES) == set()
