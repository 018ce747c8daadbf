"""Decides which holds stand on each worker, and how far each drain is.

Reads: all facts. Publishes: the fact `drain.desired` of each worker; the events `hold.*` and `drain.*`
of how far it is, each with its cause. Alone may write: the desired state of workers, and the status of Hold resources.
"""
