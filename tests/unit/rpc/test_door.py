"""What is written in one turn of the loop leaves as one write."""

from __future__ import annotations

import asyncio

from sarit.rpc.door import _Gathering


class _Transport:
    def __init__(self) -> None:
        self.told: list[object] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


def test_writes_of_a_turn_are_one_write() -> None:
    async def main() -> None:
        transport = _Transport()
        gathering = _Gathering(transport)  # type: ignore[arg-type]
        for data in (b"head", b"", b"body", b"tail"):
            gathering.write(data)
        assert transport.told == []
        await asyncio.sleep(0)
        gathering.write(b"next")
        await asyncio.sleep(0)
        assert transport.told == [b"headbodytail", b"next"]

    asyncio.run(main())


def test_what_was_written_leaves_before_the_end() -> None:
    async def main() -> None:
        transport = _Transport()
        gathering = _Gathering(transport)  # type: ignore[arg-type]
        gathering.write(b"farewell")
        gathering.close()
        gathering.write(b"too late")
        await asyncio.sleep(0)
        assert transport.told == [b"farewell", "close"]
        assert gathering.is_closing()

    asyncio.run(main())
