"""Kubernetes as Lockstep needs it: few calls, small types, one watch that survives everything. Start at `port.py`."""
