"""Slurm through slurmrestd: its words, its errors, its JSON, and the client that speaks it."""
