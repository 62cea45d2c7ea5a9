"""The clients: asyncio, and a blocking one that is generated from it."""
