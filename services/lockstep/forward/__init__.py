"""Posts events to HTTP endpoints: Argo Events, Knative, chat webhooks, or whatever takes CloudEvents.

Reads: the stream of events. Publishes: the fact `forward.position` of each endpoint; dead letters of what an endpoint
would not take. Alone may write: these. Optional: without endpoints in the settings there is nothing to run.
"""
