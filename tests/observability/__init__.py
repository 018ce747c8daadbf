"""What people look at: the dashboards and the page of metrics, made from one description each.

`python -m tests.observability` writes them anew; a test compares what is committed with what would be written.
"""
