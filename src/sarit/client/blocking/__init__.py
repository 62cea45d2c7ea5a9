"""The blocking client: the asyncio client on the event loop of a background thread.  Mostly generated."""
