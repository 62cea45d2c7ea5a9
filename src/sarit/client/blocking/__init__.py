"""The blocking face: the asyncio client behind a thread of its own."""
