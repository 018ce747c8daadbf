"""What a Kubernetes node says of itself that counts as a hold: conditions, taints, labels. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from lockstep.contracts.facts import KubeNode
from lockstep.contracts.policy import Signal, signal_of
from lockstep.kube import keys


def told(node: KubeNode, wanted: Iterable[str]) -> Iterator[tuple[Signal, str]]:
    """The wanted signals that the node shows and nobody told us to ignore, each with what it says."""
    for signal in dict.fromkeys(map(signal_of, wanted)):
        said = _said(node, signal)
        if said is not None and not _is_ignored(node, signal):
            yield signal, said


def _said(node: KubeNode, signal: Signal) -> str | None:
    match signal.kind:
        case "condition":
            for c in node.conditions:
                if c.type == signal.key and c.status == signal.value:
                    why = ": ".join(part for part in (c.reason, c.message) if part)
                    return f"{signal.key} {why}" if why else f"{signal.key} is {c.status}"
            return None
        case "taint":
            shown = any(t.key == signal.key and signal.value in {"", t.value} for t in node.taints)
            return f"taint {signal.key}" if shown else None
        case "label":
            value = node.labels.get(signal.key)
            return f"label {signal.key}={value}" if value is not None and signal.value in {"", value} else None


def _is_ignored(node: KubeNode, signal: Signal) -> bool:
    """Whether the node's annotation says that this does not count.

    `DiskPressure`, `taint:example.com/repair` and `label:state=bad` count as long as they are written there;
    `DiskPressure=2026-12-01T06:00:00Z` as long as that was the condition's last transition.
    """
    said = {text.strip() for text in node.annotations.get(keys.IGNORE_CONDITIONS, "").split(",")}
    if not said.isdisjoint({str(signal), f"{signal.kind}:{signal.key}", signal.key, f"{signal.key}={signal.value}"}):
        return True
    since = {c.since for c in node.conditions if signal.kind == "condition" and c.type == signal.key and c.since}
    named = (text.partition("=") for text in said)
    return any(key == signal.key and _moment(value) in since for key, _, value in named)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
