"""The chart itself: upgraded, failing over, uninstalled. Run with `--installed`."""
