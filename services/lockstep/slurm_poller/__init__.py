"""Reads Slurm and tells what it shows.

Reads: nodes, the jobs on workers that are being drained (all jobs if the setting `jobs` says so), reservations, of each
cluster. Publishes: the facts `slurm.node`, `slurm.job`, `slurm.reservation` and the heartbeats `source.health` of them;
the events `slurm-node.*`, `job.*`, `source.lost` and `source.back` of `slurm.*`. Each event comes before the fact that
it is the cause of. Alone may write: these facts.
"""
