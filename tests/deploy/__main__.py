"""`python -m tests.deploy`: writes what the Helm chart takes from the source anew. A test holds them equal."""

import json
from pathlib import Path
from typing import Any

from .page import page
from .rights import rights
from .schema import schema
from .users import users_conf, users_json

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "lockstep"
COPIED = ("crds/*.yaml", "policies/*.yaml", "alerts/*.rules.yaml", "dashboards/*.json")
"""Below `deploy/`: Helm can only read what is inside the chart."""


def files() -> dict[Path, str]:
    """Every file that is made here, and its text."""
    copied = {
        CHART / "files" / path.relative_to(DEPLOY): path.read_text(encoding="utf-8")
        for pattern in COPIED
        for path in sorted(DEPLOY.glob(pattern))
    }
    made = {"files/rights.json": rights(), "files/nats-users.json": users_json(), "values.schema.json": schema()}
    texts = {
        CHART / "README.md": page((CHART / "values.yaml").read_text(encoding="utf-8")),
        DEPLOY / "nats" / "users.conf": users_conf(),
    }
    return copied | texts | {CHART / name: _json(content) for name, content in made.items()}


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
