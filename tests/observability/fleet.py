"""The dashboard for whoever runs the fleet."""

from .grafana import PER, Dashboard, Panel, Query, Row

CLUSTER = '{cluster=~"$cluster"}'
BUSY = 'sum(lockstep_workers{cluster=~"$cluster",phase="busy"})'


def _events(types: str) -> str:
    """How many events of these types there were."""
    return f'sum by (type) (increase(lockstep_events_total{{type=~"{types}"}}{PER})) > 0'


FLEET = Dashboard(
    uid="lockstep-fleet",
    title="Lockstep / Fleet",
    description="What the workers do in Slurm, who holds them, how far the drains are, whether the pods are protected.",
    variables=("cluster",),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Workers",
                    "All workers that either system knows.",
                    (Query(f"sum(lockstep_workers{CLUSTER})"),),
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Busy",
                    "Share of the workers on which jobs run.",
                    (Query(f"{BUSY} / sum(lockstep_workers{CLUSTER})"),),
                    unit="percentunit",
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Held",
                    "Workers that at least one hold keeps out of service.",
                    (Query(f"sum(lockstep_drains{CLUSTER})"),),
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Overdue",
                    "Drains that are past their deadline and not empty. Runbook: LockstepDrainOverdue.",
                    (Query('sum(lockstep_drains{cluster=~"$cluster",progress="overdue"})'),),
                    kind="stat",
                    width=4,
                    red_from=1,
                ),
                Panel(
                    "Unprotected",
                    "Pods that should be protected from eviction and are not. Runbook: LockstepProtectionMissing.",
                    (Query('sum(lockstep_pods{cluster=~"$cluster",protection="missing"})'),),
                    kind="stat",
                    width=4,
                    red_from=1,
                ),
                Panel(
                    "Down or unknown",
                    "Workers that Slurm cannot use, and that need somebody.",
                    (Query('sum(lockstep_workers{cluster=~"$cluster",phase=~"down|unknown"})'),),
                    kind="stat",
                    width=4,
                    red_from=1,
                ),
            ),
        ),
        Row(
            "Workers",
            (
                Panel(
                    "Workers by phase",
                    "Each worker is in one phase; the sum is the fleet.",
                    (Query(f"sum by (phase) (lockstep_workers{CLUSTER})", "{{phase}}"),),
                    width=12,
                    stacked=True,
                ),
                Panel(
                    "Drains by progress",
                    "waiting: Slurm does not show DRAIN yet; draining: jobs still run; drained: proven empty.",
                    (Query(f"sum by (progress) (lockstep_drains{CLUSTER})", "{{progress}}"),),
                    width=12,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Holds",
            (
                Panel(
                    "Holds by class",
                    "A worker with two holds counts twice: it comes back when both have ended.",
                    (Query(f"sum by (class) (lockstep_holds{CLUSTER})", "{{class}}"),),
                    stacked=True,
                ),
                Panel(
                    "Who holds most",
                    "Owners by the number of workers that they hold; other is everybody who holds few.",
                    (Query(f"topk(10, sum by (owner) (lockstep_holds{CLUSTER}))", "{{owner}}"),),
                    kind="bargauge",
                ),
                Panel(
                    "Pods by protection",
                    "open: may be evicted, as intended. missing: not protected, and should be.",
                    (Query(f"sum by (protection) (lockstep_pods{CLUSTER})", "{{protection}}"),),
                    stacked=True,
                ),
            ),
        ),
        Row(
            "What happens",
            (
                Panel(
                    "Holds and drains",
                    "Events of all clusters, as they are published.",
                    (
                        Query(
                            _events("hold.+|drain.+"),
                            "{{type}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Pods and nodes",
                    "Events of all clusters, as they are published.",
                    (
                        Query(
                            _events("pod.+|node.+|slurm-node.+"),
                            "{{type}}",
                        ),
                    ),
                    width=12,
                ),
            ),
        ),
    ),
)
