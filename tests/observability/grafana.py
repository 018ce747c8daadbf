"""Grafana's JSON from a few words a panel."""

from dataclasses import dataclass, field
from typing import Any, Literal

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""The dashboard's own variable: whoever opens it chooses."""
WIDTH = 24
"""Columns of a Grafana page."""

PER = "[$__rate_interval]"
"""The range over which a rate is taken, as wide as the page's resolution asks for."""

Kind = Literal["timeseries", "stat", "bargauge"]
Unit = Literal["short", "s", "bytes", "percentunit", "ops", "bool"]


@dataclass(frozen=True)
class Query:
    """One expression, and what its series are called (`{{label}}` is filled in)."""

    expr: str
    legend: str = ""
    exemplars: bool = False


@dataclass(frozen=True)
class Panel:
    """One picture. `description` says what it means when it is not as usual."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    stacked: bool = False
    red_from: float | None = None
    """Values from here on are shown red."""

    @property
    def height(self) -> int:
        """In Grafana's rows."""
        return 4 if self.kind == "stat" else 8


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A page. `uid` is its address in Grafana."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[str, ...] = field(default=())
    """Labels of `lockstep_workers` that the reader may choose by."""

    def queries(self) -> list[Query]:
        """All of its queries."""
        return [query for row in self.rows for panel in row.panels for query in panel.queries]


def quantiles(metric: str, by: str, legend: str) -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram."""
    rate = f"sum by (le, {by}) (rate({metric}_bucket{PER}))"
    return (
        Query(f"histogram_quantile(0.5, {rate})", f"p50 {legend}", exemplars=True),
        Query(f"histogram_quantile(0.99, {rate})", f"p99 {legend}"),
    )


def json_of(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["lockstep"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(label) for label in dashboard.variables)]},
        "links": [
            {"type": "dashboards", "tags": ["lockstep"], "title": "Lockstep", "asDropdown": True, "keepTime": True}
        ],
        "panels": _panels(dashboard.rows),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values(lockstep_workers, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        made.append(
            {"type": "row", "title": row.title, "id": len(made) + 1, "gridPos": _at(0, y, WIDTH, 1), "panels": []}
        )
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            made.append(_panel(panel, len(made) + 1, _at(x, y, panel.width, panel.height)))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return made


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    custom = {"fillOpacity": 60 if panel.stacked else 10, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({"custom": custom} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": _options(panel.kind),
        "targets": [_target(query, chr(ord("A") + index), panel) for index, query in enumerate(panel.queries)],
    }


def _options(kind: Kind) -> dict[str, Any]:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    shown = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return shown | (
        {"orientation": "horizontal", "displayMode": "basic"} if kind == "bargauge" else {"colorMode": "value"}
    )


def _target(query: Query, ref: str, panel: Panel) -> dict[str, Any]:
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": panel.kind != "timeseries",
        "range": panel.kind == "timeseries",
        "exemplar": query.exemplars,
    }
