"""`lockstep doctor`: how what was read is judged."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstep.base.errors import Retry
from lockstep.cli import checks
from lockstep.cli.checks import Check, Level
from lockstep.cli.doctor import about_settings, guarded, report
from lockstep.cli.examine_slurm import secret
from lockstep.cli.exits import Exit
from lockstep.cli.rights import RIGHTS
from lockstep.cli.standalone import SERVICES
from lockstep.kube.errors import Denied
from lockstep.kube.wire import MatchExpression, ObjectMeta, Pdb, PdbSpec, Pod, Selector
from lockstep.runtime.settings import ClusterSettings, LeaseSettings, Settings
from tests.builders import NOW
from tests.unit.cli.seen import captured

SOON = NOW + timedelta(milliseconds=100)


@pytest.mark.parametrize(
    ("date", "level", "said"),
    [
        ("Tue, 01 Dec 2026 12:00:00 GMT", Level.OK, "agrees"),
        ("Tue, 01 Dec 2026 11:59:59 GMT", Level.OK, "agrees"),
        ("Tue, 01 Dec 2026 12:00:02 GMT", Level.OK, "agrees"),
        ("Tue, 01 Dec 2026 12:00:30 GMT", Level.WARN, "29s ahead of"),
        ("Tue, 01 Dec 2026 11:59:30 GMT", Level.WARN, "29s behind"),
        ("", Level.OK, "does not tell"),
        ("never", Level.OK, "does not tell"),
    ],
)
def test_a_clock_that_is_more_than_two_seconds_off_is_a_warning(date: str, level: Level, said: str) -> None:
    """A Date header is cut to whole seconds, which is allowed for."""
    found = checks.skew("kubernetes", checks.date_of(date), NOW, SOON)

    assert (found.level, said in found.found) == (level, True)


def a_jwt(**claims: Any) -> str:
    """A token with these claims; nobody checks the signature."""
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{part}.c2ln"


@pytest.mark.parametrize(("left_s", "level"), [(-5, Level.FAIL), (600, Level.WARN), (86400, Level.OK)])
def test_a_token_is_judged_by_the_time_that_it_has_left(left_s: int, level: Level) -> None:
    """Expired fails, soon warns; and the token itself is never shown."""
    token = a_jwt(exp=NOW.timestamp() + left_s)

    found = checks.token("slurm main", f"SLURM_JWT={token}\n", NOW)

    assert found is not None
    assert found.level is level
    assert token not in found.found + found.do


@pytest.mark.parametrize("text", ["", "opaque", "a.b.c", a_jwt(sub="me"), a_jwt(exp="soon"), a_jwt(exp=[1])])
def test_a_token_that_does_not_say_is_no_finding(text: str) -> None:
    """Opaque tokens and tokens without expiry are left alone."""
    assert checks.token("kubernetes", text, NOW) is None


@pytest.mark.parametrize(
    ("version", "level"), [("24.11.5", Level.OK), ("26.05.0-rc1", Level.OK), ("24.05.3", Level.FAIL), ("", Level.OK)]
)
def test_slurm_before_24_11_is_not_spoken(version: str, level: Level) -> None:
    """The oldest release that Lockstep speaks is 24.11."""
    assert checks.slurm_version("slurm main", version, "v0.0.42").level is level


@pytest.mark.parametrize(("minor", "level"), [(28, Level.FAIL), (31, Level.WARN), (36, Level.OK)])
def test_kubernetes_is_judged_by_what_it_can(minor: int, level: Level) -> None:
    """Before 1.36 nobody writes who created a Hold."""
    assert checks.kubernetes_version(1, minor, f"v1.{minor}").level is level


def a_pdb(name: str, selector: Selector | None, namespace: str = "slurm") -> Pdb:
    """A disruption budget."""
    return Pdb(metadata=ObjectMeta(name=name, namespace=namespace), spec=PdbSpec(selector=selector))


WORKER = Pod(metadata=ObjectMeta(name="gpu-7", namespace="slurm", labels={"app.kubernetes.io/name": "slurmd"}))
PROTECTED = Selector(match_labels={"nodeset.slinky.slurm.net/pod-protect": "true"})
ALL_SLURMD = Selector(match_labels={"app.kubernetes.io/name": "slurmd"})


def test_two_budgets_over_one_pod_fail() -> None:
    """The eviction API would answer 500; the protecting one counts also while its label is not set."""
    (found,) = checks.budgets([WORKER], [a_pdb("ours", PROTECTED), a_pdb("theirs", ALL_SLURMD)])

    assert found.level is Level.FAIL
    assert "ours and theirs" in found.found


@pytest.mark.parametrize(
    "others",
    [
        [],
        [a_pdb("elsewhere", ALL_SLURMD, "other")],
        [a_pdb("nobody", None)],
        [a_pdb("web", Selector(match_labels={"app": "web"}))],
    ],
)
def test_one_budget_is_as_it_should_be(others: list[Pdb]) -> None:
    """Budgets of other namespaces, of no pod and of other pods do not matter."""
    (found,) = checks.budgets([WORKER], [a_pdb("ours", PROTECTED), *others])

    assert found.level is Level.OK


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        (("a", "In", ["1", "2"]), True),
        (("a", "In", ["2"]), False),
        (("a", "NotIn", ["2"]), True),
        (("b", "NotIn", ["2"]), True),
        (("a", "Exists", []), True),
        (("b", "Exists", []), False),
        (("b", "DoesNotExist", []), True),
        (("a", "Newer", []), False),
    ],
)
def test_selectors_fit_as_in_kubernetes(expression: tuple[str, str, list[str]], fits: bool) -> None:
    """Every operator, and an unknown one fits nothing."""
    key, operator, values = expression
    selector = Selector(match_expressions=[MatchExpression(key=key, operator=operator, values=values)])

    assert checks.matches(selector, {"a": "1"}) is fits


async def test_what_cannot_be_asked_is_a_failed_check() -> None:
    """One system that is away does not end the others' checks, and the line says what to do."""

    async def denied() -> list[Check]:
        raise Denied("GET /x: 403 no")

    async def away() -> list[Check]:
        raise Retry("NATS at nats://x does not answer")

    (one,), (two,) = await guarded("rights", denied()), await guarded("nats", away())

    assert (one.level, one.do) == (Level.FAIL, "give the rights, or use other credentials")
    assert (two.level, two.found) == (Level.FAIL, "NATS at nats://x does not answer")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([checks.ok("a", "b")], Exit.OK),
        ([checks.warn("a", "b", "c")], Exit.OK),
        ([checks.ok("a", "b"), checks.fail("a", "b", "c")], Exit.NO),
    ],
)
def test_only_a_failed_check_fails_the_command(found: list[Check], code: Exit) -> None:
    """Warnings are for people."""
    out, text, _ = captured()

    assert report(out, "table", found) is code
    assert len(text.getvalue().splitlines()) == len(found) + sum(bool(c.do) for c in found)


def test_json_lists_every_check_with_what_to_do() -> None:
    """For scripts and tickets."""
    out, text, _ = captured()
    report(out, "json", [checks.warn("a", "b", "c")])

    assert json.loads(text.getvalue()) == {
        "kind": "CheckList",
        "items": [{"level": "warn", "area": "a", "found": "b", "do": "c"}],
    }


def a_cluster(tmp_path: Path, content: str, mode: int = 0o600) -> ClusterSettings:
    """A cluster whose token is in a file."""
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(mode)
    return ClusterSettings(name="main", namespace="slurm", url="http://x", token_file=str(path))


def test_a_secret_must_be_there_and_be_ours_alone(tmp_path: Path) -> None:
    """Missing and empty fail; readable by everybody warns."""
    missing = ClusterSettings(name="main", namespace="slurm", url="http://x", key_file=str(tmp_path / "none"))

    assert [c.level for c in secret("s", missing)] == [Level.FAIL]
    assert [c.level for c in secret("s", a_cluster(tmp_path, " "))] == [Level.FAIL]
    assert [c.level for c in secret("s", a_cluster(tmp_path, "opaque", 0o644))] == [Level.WARN]
    assert secret("s", a_cluster(tmp_path, "opaque")) == []


def test_settings_without_a_lease_are_a_warning(tmp_path: Path) -> None:
    """Two copies would both act."""
    settings = Settings(clusters=[a_cluster(tmp_path, "t")], lease=LeaseSettings(enabled=False))

    assert [c.level for c in about_settings(settings)] == [Level.OK, Level.WARN]


def test_every_service_has_rights_or_needs_none() -> None:
    """The table of rights speaks of services that exist."""
    assert RIGHTS.keys() == set(SERVICES)
