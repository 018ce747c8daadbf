"""The benchmark: how fast both systems follow each other on a thousand real slurmds, and what that costs."""
