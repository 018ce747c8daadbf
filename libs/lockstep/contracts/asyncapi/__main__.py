"""`python -m lockstep.contracts.asyncapi proto docs/events.md` writes what is made from the types."""

import json
import sys
from pathlib import Path

from lockstep.contracts.asyncapi import files
from lockstep.contracts.asyncapi.table import with_tables


def main(proto: Path, page: Path) -> None:
    """Writes the document and the schemas into `proto`, takes away schemas of what is no more, renews the tables."""
    examples = {path.stem: json.loads(path.read_text("utf-8")) for path in proto.glob("examples/*.json")}
    made = files(examples)
    for path in proto.glob("schemas/*.json"):
        if str(path.relative_to(proto)) not in made:
            path.unlink()
    for name, content in made.items():
        (proto / name).write_text(content, "utf-8")
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
