"""What everything stands on: errors, clock, backoff, text. Standard library only."""
