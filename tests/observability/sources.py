"""The dashboard for what Lockstep depends on."""

from .grafana import PER, Dashboard, Panel, Query, Row, quantiles

CALLS = "lockstep_slurm_call_seconds"

SOURCES = Dashboard(
    uid="lockstep-sources",
    title="Lockstep / Sources",
    description="Kubernetes, Slurm and NATS as Lockstep meets them: how fresh, how slow, how full.",
    rows=(
        Row(
            "Freshness",
            (
                Panel(
                    "Age of the sources",
                    "Since each was last complete. Above policy.stale_after_s nothing is done that needs it. Jobs are"
                    " read only while a node drains.",
                    (
                        Query(
                            'max by (source, of) (lockstep_source_age_seconds{source!="slurm.job"})',
                            "{{source}} {{of}}",
                        ),
                    ),
                    unit="s",
                    width=12,
                    red_from=30,
                ),
                Panel(
                    "Sources that can be read",
                    "0: told lost. Runbook: LockstepSourceLost.",
                    (Query("min by (source, of) (lockstep_source_up)", "{{source}} {{of}}"),),
                    width=12,
                ),
            ),
        ),
        Row(
            "Slurm",
            (
                Panel(
                    "Share of the time that waits for Slurm",
                    "Kept under poll.max_share by reading more rarely; somewhat more while a node drains.",
                    (Query(f"sum by (cluster) (rate(lockstep_poll_seconds_sum{PER}))", "{{cluster}}"),),
                    unit="percentunit",
                ),
                Panel(
                    "One reading",
                    "Seconds that a reading of nodes, jobs and reservations waits for Slurm.",
                    quantiles("lockstep_poll_seconds", "cluster", "{{cluster}}"),
                    unit="s",
                ),
                Panel(
                    "From one reading to the next",
                    "As now chosen: short while there is something to follow.",
                    (Query("max by (cluster) (lockstep_poll_interval_seconds)", "{{cluster}}"),),
                    unit="s",
                ),
                Panel(
                    "Requests to slurmrestd",
                    "By route; all processes together.",
                    (
                        Query(
                            f"sum by (cluster, method, route) (rate({CALLS}_count{PER}))",
                            "{{cluster}} {{method}} {{route}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Time of a request",
                    "The slowest hundredth, by route.",
                    (
                        Query(
                            f"histogram_quantile(0.99, sum by (le, cluster, route) (rate({CALLS}_bucket{PER})))",
                            "{{cluster}} {{route}}",
                        ),
                    ),
                    unit="s",
                ),
                Panel(
                    "Requests without an answer",
                    "Time-outs and broken connections. One now and then is borne.",
                    (
                        Query(
                            f'sum by (cluster, route) (rate({CALLS}_count{{answered="false"}}{PER})) > 0',
                            "{{cluster}} {{route}}",
                        ),
                    ),
                    unit="ops",
                ),
            ),
        ),
        Row(
            "Kubernetes",
            (
                Panel(
                    "Requests to the API server",
                    "By status; 409 is a conflict, which is decided anew; none: no answer.",
                    (Query(f"sum by (method, code) (rate(lockstep_kube_requests_total{PER}))", "{{method}} {{code}}"),),
                    unit="ops",
                    width=12,
                ),
                Panel(
                    "Time of a request",
                    "To the head of the answer; what waits for its turn in Lockstep (kube.qps) is not in it.",
                    quantiles("lockstep_kube_call_seconds", "method", "{{method}}"),
                    unit="s",
                    width=12,
                ),
            ),
        ),
        Row(
            "NATS",
            (
                Panel(
                    "Connected",
                    "1: connected. stuck: seconds for which nothing was stored. Runbook: LockstepNatsAway.",
                    (
                        Query("lockstep_nats_up", "{{instance}}"),
                        Query("lockstep_nats_stuck_seconds", "stuck: {{instance}}"),
                    ),
                ),
                Panel(
                    "Behind",
                    "Messages that a process has not taken in yet.",
                    (Query("max by (service, stream) (lockstep_consumer_lag_messages)", "{{service}} {{stream}}"),),
                ),
                Panel(
                    "Streams, share of their limit",
                    "Above 80 %: LockstepStreamNearlyFull.",
                    (Query("max by (stream) (lockstep_stream_used_ratio)", "{{stream}}"),),
                    unit="percentunit",
                    red_from=0.8,
                ),
                Panel(
                    "Streams, bytes",
                    "On NATS' disk.",
                    (
                        Query("max by (stream) (lockstep_stream_bytes)", "{{stream}}"),
                        Query("max by (stream) (lockstep_stream_limit_bytes)", "limit of {{stream}}"),
                    ),
                    unit="bytes",
                ),
                Panel(
                    "Streams, messages",
                    "Facts: one for each thing. Events: those of a week.",
                    (Query("max by (stream) (lockstep_stream_messages)", "{{stream}}"),),
                ),
                Panel(
                    "Put aside",
                    "Messages that a reader gave up on, within an hour. Runbook: LockstepDeadLetters.",
                    (Query('max(delta(lockstep_stream_last_sequence{stream="LOCKSTEP_DEAD"}[1h]))', "dead letters"),),
                ),
            ),
        ),
    ),
)
