"""Makes both systems agree: the shortest safe list of writes for each worker, in the only safe order.

Reads: all facts. Publishes: the fact `reconciler.wrote` of each worker; the events `worker.*`, `hold.reasserted` and
`drain.acted`. Alone may write: Slurm node state and reason, the end of jobs by a drain's policy; pod conditions
`SlurmNodeState*`, the pod label `pod-protect` and its PodDisruptionBudget; the node condition `lockstep.sh/InService`
and our own (mirrored) cordons.
"""
