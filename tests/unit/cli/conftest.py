"""Before Python 3.12 pytest-asyncio keeps the loop that it finds at its first test, and never closes it."""

import asyncio

asyncio.set_event_loop(None)
