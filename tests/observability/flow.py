"""The dashboard for how Lockstep itself works."""

from .grafana import PER, Dashboard, Panel, Query, Row, quantiles

TOLD = "worker.drift-found.+|fleet.gap-found.+|worker.write-refused.+"
AMISS = f'sum by (type) (increase(lockstep_events_total{{type=~"{TOLD}"}}{PER}))'

FLOW = Dashboard(
    uid="lockstep-flow",
    title="Lockstep / Flow",
    description="From a change in one system to the write in the other: how long it takes, what is refused, who leads.",
    rows=(
        Row(
            "Latency",
            (
                Panel(
                    "Legs of a flow",
                    "From a reading to its fact, the decision, the write, Slurm's answer, until a reading shows it. The"
                    " points are traces.",
                    quantiles("lockstep_leg_seconds", "leg", "{{leg}}"),
                    unit="s",
                    width=16,
                ),
                Panel(
                    "Waiting to be looked at",
                    "Workers and nodes in the queue of a service. It empties within seconds.",
                    (Query("max by (service) (lockstep_queue_depth)", "{{service}}"),),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Looks",
                    "Workers looked at; retry: it did not work and is tried again.",
                    (
                        Query(
                            f"sum by (service, verdict) (rate(lockstep_handled_total{PER}))", "{{service}} {{verdict}}"
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Writes",
                    "Writes to Slurm and Kubernetes that were answered.",
                    (Query(f'sum by (write) (rate(lockstep_writes_total{{answer="ok"}}{PER})) > 0', "{{write}}"),),
                    unit="ops",
                ),
                Panel(
                    "Writes that failed",
                    "conflict: it is decided anew, which is usual. refused: see the runbook LockstepWriteRefused.",
                    (
                        Query(
                            f'sum by (write, answer) (rate(lockstep_writes_total{{answer!="ok"}}{PER})) > 0',
                            "{{write}} {{answer}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Events",
                    "All events that are published, by type.",
                    (Query(f"sum by (type) (rate(lockstep_events_total{PER})) > 0", "{{type}}"),),
                    unit="ops",
                ),
                Panel(
                    "Requests",
                    "Requests of others, by verb and answer.",
                    (
                        Query(
                            f"sum by (verb, answer) (increase(lockstep_requests_total{PER})) > 0", "{{verb}} {{answer}}"
                        ),
                    ),
                ),
                Panel(
                    "What is amiss",
                    "Drift between the systems, gaps, refused writes: each has a runbook.",
                    (
                        Query(
                            AMISS,
                            "{{type}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Who leads",
                    "Processes that act as each service: exactly one. Runbook: LockstepNoLeader.",
                    (Query("sum by (service) (lockstep_leading)", "{{service}}"),),
                ),
                Panel(
                    "Starts",
                    "Services that failed and were started anew, and processes that were started, within an hour.",
                    (
                        Query("sum by (service) (increase(lockstep_restarts_total[1h]))", "{{service}}"),
                        Query("changes(lockstep_process_start_time_seconds[1h])", "{{instance}}"),
                    ),
                ),
                Panel(
                    "CPU",
                    "Cores that each process uses.",
                    (Query(f"rate(lockstep_process_cpu_seconds_total{PER})", "{{instance}}"),),
                    unit="percentunit",
                ),
                Panel(
                    "Memory",
                    "Resident memory of each process.",
                    (Query("lockstep_process_resident_memory_bytes", "{{instance}}"),),
                    unit="bytes",
                ),
            ),
        ),
    ),
)
