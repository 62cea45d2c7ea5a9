"""Which requests get a slot for their reply, in which order, also after cancellations."""

import asyncio

from sarit.store.server.reply_semaphore import ReplySemaphore


class Queue:
    """Tasks that keep their slot until `leave`."""

    def __init__(self, max_bytes):
        self.reply_semaphore = ReplySemaphore(max_bytes)
        self.inside = []
        self.tasks = {}

    async def come(self, name, reply_bytes):
        leave = asyncio.Event()

        async def work():
            async with self.reply_semaphore.slot(reply_bytes):
                self.inside.append(name)
                try:
                    await leave.wait()
                finally:
                    self.inside.remove(name)

        self.tasks[name] = asyncio.ensure_future(work()), leave
        await settled()

    async def leave(self, name):
        self.tasks[name][1].set()
        await settled()

    def cancel(self, name):
        self.tasks[name][0].cancel()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def test_slots_are_granted_in_order_up_to_the_limit():
    async def main():
        queue = Queue(10)
        for name, size in (("a", 6), ("b", 4), ("c", 8), ("d", 1), ("e", 99)):
            await queue.come(name, size)
        assert queue.inside == ["a", "b"]
        await queue.leave("b")
        assert queue.inside == ["a"]  # d waits after c
        await queue.leave("a")
        assert queue.inside == ["c", "d"]
        await queue.leave("c")
        assert queue.inside == ["d"]
        await queue.leave("d")
        assert queue.inside == ["e"]  # alone, whatever its size
        await queue.leave("e")
        assert repr(queue.reply_semaphore) == "<ReplySemaphore, 0 bytes acquired, 0 waiting>"

    asyncio.run(main())


def test_no_slot_is_granted_while_paused():
    async def main():
        queue = Queue(10)
        queue.reply_semaphore.pause()
        await queue.come("a", 1)
        assert queue.inside == []
        queue.reply_semaphore.set_limit(100)
        await settled()
        assert queue.inside == []
        queue.reply_semaphore.resume()
        await settled()
        assert queue.inside == ["a"]

    asyncio.run(main())


def test_cancelled_waiter_passes_its_slot_on():
    async def main():
        queue = Queue(10)
        for name in "abcd":
            await queue.come(name, 10)
        queue.cancel("c")  # in the middle of the queue
        queue.tasks["a"][1].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.cancel("b")  # granted, but its task has not run yet
        await settled()
        assert queue.inside == ["d"]
        await queue.leave("d")
        assert repr(queue.reply_semaphore) == "<ReplySemaphore, 0 bytes acquired, 0 waiting>"

    asyncio.run(main())


def test_cancelled_head_lets_a_smaller_request_pass():
    async def main():
        queue = Queue(10)
        for name, size in (("a", 5), ("b", 9), ("c", 5)):
            await queue.come(name, size)
        queue.cancel("b")
        await settled()
        assert queue.inside == ["a", "c"]

    asyncio.run(main())
