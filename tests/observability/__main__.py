"""`python -m tests.observability`: writes `deploy/dashboards/*.json` and `docs/metrics.md` anew."""

import json
from pathlib import Path

from .fleet import FLEET
from .flow import FLOW
from .grafana import json_of
from .page import page
from .sources import SOURCES

DASHBOARDS = {"fleet": FLEET, "flow": FLOW, "sources": SOURCES}
"""By the name of their file."""
ROOT = Path(__file__).resolve().parents[2]


def files() -> dict[Path, str]:
    """Every file that is made here, and its text."""
    made = {
        ROOT / "deploy/dashboards" / f"{name}.json": json.dumps(json_of(each), indent=1) + "\n"
        for name, each in DASHBOARDS.items()
    }
    return made | {ROOT / "docs/metrics.md": page()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
