"""Who makes replies, in which order, and what is left by those who gave up."""

import asyncio

from sarit.store.server.reply_semaphore import ReplySemaphore


class Queue:
    """Tasks that stay inside until they are told to leave."""

    def __init__(self, max_bytes):
        self.reply_semaphore = ReplySemaphore(max_bytes)
        self.inside = []
        self.tasks = {}

    async def come(self, name, held_bytes):
        leave = asyncio.Event()

        async def work():
            async with self.reply_semaphore.slot(held_bytes):
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


def test_in_the_order_they_came_as_far_as_there_is_room():
    async def main():
        queue = Queue(10)
        for name, size in (("a", 6), ("b", 4), ("c", 8), ("d", 1), ("e", 99)):
            await queue.come(name, size)
        assert queue.inside == ["a", "b"]
        await queue.leave("b")
        assert queue.inside == ["a"]  # d is behind c
        await queue.leave("a")
        assert queue.inside == ["c", "d"]
        await queue.leave("c")
        assert queue.inside == ["d"]
        await queue.leave("d")
        assert queue.inside == ["e"]  # alone, whatever it holds
        await queue.leave("e")
        assert repr(queue.reply_semaphore) == "<ReplySemaphore, 0 bytes acquired, 0 waiting>"

    asyncio.run(main())


def test_nobody_while_it_is_closed():
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


def test_who_is_cancelled_leaves_its_place_to_those_behind():
    async def main():
        queue = Queue(10)
        for name in "abcd":
            await queue.come(name, 10)
        queue.cancel("c")  # waits in the middle
        queue.tasks["a"][1].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.cancel("b")  # let in, and does not know it yet
        await settled()
        assert queue.inside == ["d"]
        await queue.leave("d")
        assert repr(queue.reply_semaphore) == "<ReplySemaphore, 0 bytes acquired, 0 waiting>"

    asyncio.run(main())


def test_who_is_cancelled_at_the_head_lets_a_smaller_one_pass():
    async def main():
        queue = Queue(10)
        for name, size in (("a", 5), ("b", 9), ("c", 5)):
            await queue.come(name, size)
        queue.cancel("b")
        await settled()
        assert queue.inside == ["a", "c"]

    asyncio.run(main())
