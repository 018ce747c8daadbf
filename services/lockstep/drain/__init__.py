"""Decides which holds stand on each worker, and how far each drain is; and answers requests.

Reads: all facts; the queue of requests. Publishes: the fact `drain.desired` of each worker; the events `hold.*` and
`drain.*` of how far it is, each with its cause; the events `request.*`. Alone may write: the desired state of workers,
and the status of Hold resources. Makes and ends Holds where a request asks for it.
"""
