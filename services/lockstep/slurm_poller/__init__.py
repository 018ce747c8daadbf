"""Reads Slurm and tells what it shows.

Reads: nodes, the jobs on workers that are being drained, reservations, of each cluster. Publishes: the facts
`slurm.node`, `slurm.job`, `slurm.reservation` and the heartbeats `source.health` of them; the events `slurm-node.*`,
`source.lost` and `source.back` of `slurm.*`. Alone may write: these facts.
"""
