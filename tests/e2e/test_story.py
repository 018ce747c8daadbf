"""The story of a worker, as the command tells it after real events on both systems."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.e2e.guard import in_step
from tests.e2e.site import Site, eventually

IN_ORDER = ("node.cordoned", "hold.placed", "drain.started", "worker.drain-set", "drain.drained")
IN_ORDER += ("node.uncordoned", "hold.released", "drain.ended", "worker.drain-lifted")
STEPS = (*IN_ORDER, "worker.unprotected", "worker.protected")
"""The reconciler proves a drain by itself; which of the two says it first is not told by a cause."""


def types(lines: list[dict[str, Any]]) -> list[str]:
    """Which kinds of events are told, in the order of the story."""
    return [line["type"].removesuffix(".v1") for line in lines]


def test_the_story_of_a_cordon_reads_as_it_happened(site: Site, tmp_path: Path) -> None:
    """Cordoned, drained when the job has ended, let go, uncordoned, back: in this order, each told once."""
    since = datetime.now(UTC).isoformat()  # noqa: TID251  a test speaks to a real clock
    job = site.job("gpu-1")
    in_step(site)
    host = site.cordon("gpu-1")
    eventually("it waits for the job", lambda: site.why("gpu-1")["worker"]["waiting_for"])
    site.cancel(job)
    eventually("it may be evicted", lambda: not site.protected("gpu-1"))
    site.kubectl("uncordon", host)
    site.settle()

    def story() -> list[dict[str, Any]]:
        told = site.lockstep.cli("story", "gpu-1", "--since", since, "-o", "json")
        return [json.loads(line) for line in told.splitlines()]

    lines = eventually("the whole story is told", lambda: (s := story()) and "worker.protected" in types(s) and s)
    told = [kind for kind in types(lines) if kind in STEPS]
    assert sorted(told) == sorted(STEPS)
    assert [kind for kind in told if kind in IN_ORDER] == list(IN_ORDER)
    assert told.index("worker.unprotected") < told.index("node.uncordoned") < told.index("worker.protected")
    drained = next(line["text"] for line in lines if line["type"] == "drain.drained.v1")
    assert drained.startswith("drained after ")
    assert drained.endswith(f"waited for job {job}")

    text = site.lockstep.cli("story", "gpu-1", "--since", since)
    assert f"node {host} cordoned by " in text
    assert "1 drain, drained after " in text
    site.lockstep.cli("story", "gpu-1", "--since", since, "--html", str(tmp_path / "story.html"))
    page = (tmp_path / "story.html").read_text(encoding="utf-8")
    assert page.count("<dt><bdi>type</bdi></dt>") == len(lines)


def test_diff_says_what_a_hold_changed(site: Site) -> None:
    """Between before and now, and that nothing else changed."""
    before = datetime.now(UTC).isoformat()  # noqa: TID251  a test speaks to a real clock
    site.hold("dimm", {"names": ["gpu-2"]}, "DIMM B2 swap")
    in_step(site)

    answer = json.loads(site.lockstep.cli("diff", before, "-o", "json"))

    (change,) = [item for item in answer["items"] if item.get("placed")]
    assert (change["name"], change["placed"][0]["id"]) == ("gpu-2", "hold/slurm/dimm")
    assert change["phase"] == {"then": "idle", "now": "drained"}
    assert "holds placed 1 (manual 1)" in answer["summary"]
