"""Lockstep on real Kubernetes, Slurm and NATS. One lab for the whole run."""
