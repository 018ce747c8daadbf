"""`docs/metrics.md` from the metrics themselves."""

from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from lockstep.runtime import metrics

HERE = Path(__file__).parent


def declared() -> list[MetricWrapperBase]:
    """All metrics of ours, in the order in which they are declared."""
    return [each for each in vars(metrics).values() if isinstance(each, MetricWrapperBase)]


def name_of(metric: MetricWrapperBase) -> str:
    """The name as Prometheus has it."""
    return str(metric._name) + _tail(str(metric._type))


def series() -> set[str]:
    """Every name of a series that there can be, histograms' parts included."""
    found: set[str] = {family.name + _tail(family.type) for family in _process()}
    for metric in declared():
        parts = ("_bucket", "_sum", "_count") if metric._type == "histogram" else ("",)
        found |= {name_of(metric) + part for part in parts}
    return found


def page() -> str:
    """The page."""
    rows = [(name_of(m), m._type, ", ".join(m._labelnames), m._documentation) for m in declared()]
    rows += [(family.name + _tail(family.type), family.type, "", family.documentation) for family in _process()]
    table = "\n".join(f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows)
    return (HERE / "page.md").read_text(encoding="utf-8").replace("TABLE\n", table + "\n")


def _process() -> list[Metric]:
    return list(ProcessCollector(namespace="lockstep", registry=None).collect())


def _tail(kind: str) -> str:
    return "_total" if kind == "counter" else ""
