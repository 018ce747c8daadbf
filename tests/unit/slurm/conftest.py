"""Keeps pytest-asyncio from making a loop at its first test that nobody closes (Python before 3.12)."""

import asyncio

asyncio.set_event_loop(None)
