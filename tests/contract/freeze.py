"""`python -m tests.contract.freeze 0.2` keeps today's types and examples, so that later ones are held against them.

The types are copied as they stand, under another name; the copies are never changed by hand.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from lockstep.contracts.asyncapi import VERSION

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "libs/lockstep/contracts"
FROZEN = Path(__file__).parent / "frozen"
TYPES = [
    "common.py",
    "hold.py",
    "facts.py",
    "requests.py",
    *(f"events/{p.name}" for p in CONTRACTS.glob("events/*.py")),
]


def freeze(version: str, into: Path = FROZEN) -> Path:
    """Writes the types and examples of today as those of `version`; what was kept under that name is replaced."""
    name = "v" + re.sub(r"\W", "_", version)
    kept = into / name
    shutil.rmtree(kept, ignore_errors=True)
    for path in TYPES:
        (kept / path).parent.mkdir(parents=True, exist_ok=True)
        source = (CONTRACTS / path).read_text("utf-8")
        (kept / path).write_text(source.replace("lockstep.contracts", f"tests.contract.frozen.{name}"), "utf-8")
    examples = {p.stem: json.loads(p.read_text("utf-8")) for p in sorted((ROOT / "proto/examples").glob("*.json"))}
    (kept / "examples.json").write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return kept


if __name__ == "__main__":
    written = freeze(sys.argv[1] if sys.argv[1:] else VERSION.rpartition(".")[0])
    sys.stdout.write(f"{written}\n")
