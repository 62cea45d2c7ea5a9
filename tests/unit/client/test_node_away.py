"""Every public method of the client while the node is away: Unavailable after the retry timeout, not before or later.

The node is behind two proxies.  `refuses`: its ports are closed, as after a kill.  `silent`: they accept, and nothing
comes, as behind a firewall or from a stopped process."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import typing
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

import sarit
from sarit.client import aio
from sarit.client.limits import CONTROLLER_PING_SECONDS, MIN_ATTEMPT_SECONDS
from sarit.core.errors import TimedOut, Unavailable, Unreachable
from tests.limits import patient
from tests.unit.client.away_cases import ENDS, RAISES_SOONER, World, wait
from tests.unit.client.away_search_cases import CASES
from tests.unit.client.nodes import local_node
from tests.unit.client.proxy import Proxy, proxy
from tools.blocking_manifest import MODULES

RETRY_TIMEOUT: Final = 3.0
AT_ONCE: Final = 8  # prepared; more of them would take longer than the retry timeout on a busy machine
MOST_PREPARATIONS: Final = 10  # of a case, on a machine so busy that its calls take longer all the same


def bound() -> float:
    """Seconds that a call may take.  A silent port takes one attempt more, and all cases share one loop and a busy
    machine.  A fixed 30 s is seen where nothing else runs."""
    return RETRY_TIMEOUT + 2 * MIN_ATTEMPT_SECONDS + patient(10.0)


def asks_node(member: Any) -> bool:
    """Whether a method of an asyncio class may wait for the node."""
    if inspect.iscoroutinefunction(member):
        return True
    return callable(member) and "AsyncIterator" in str(getattr(member, "__annotations__", {}).get("return", ""))


def methods() -> set[str]:
    """`Class.method` of every public method that asks the node; one that enters or leaves a block calls another."""
    found = set()
    for module in MODULES:
        for facade in module.facades:
            source = getattr(importlib.import_module(facade.source), facade.name)
            for name, member in vars(source).items():
                public = not name.startswith("_") or name in ("__aiter__", "__call__")
                if public and name not in facade.hidden and asks_node(member):
                    found.add(f"{facade.name}.{'__iter__' if name == '__aiter__' else name}")
    return found


def test_every_public_method_has_a_case() -> None:
    assert set(CASES) == methods()


class Ways:
    """The proxies before the controller and the store."""

    def __init__(self, controller: Proxy, store: Proxy) -> None:
        self.controller, self.store = controller, store

    def lead(self, session: Any) -> None:
        """Have the client find the store behind its proxy."""

        async def endpoint(stream: object, segment: object) -> tuple[str, int]:
            await real(stream, segment)
            return "127.0.0.1", self.store.port

        real = session.controller.endpoint
        session.controller.endpoint = endpoint

    async def break_off(self, how: str) -> None:
        """The node is away."""
        for way in (self.controller, self.store):
            if how == "silent":
                way.silent = True
            else:
                await way.refuse()


@asynccontextmanager
async def ways(directory) -> typing.AsyncIterator[Ways]:
    async with (
        local_node(directory / "node") as made,
        proxy(("127.0.0.1", made.node.controller_port)) as controller,
        proxy(("127.0.0.1", made.node.store_port)) as store,
    ):
        yield Ways(controller, store)


async def outcome(act: Any, how: str, began: float, away: str, longest: float) -> str:
    """What is wrong with how a call ended; "" when nothing is.  `began`: when the node went away."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(3 * longest):
            result = await act()
        error: BaseException | None = None
    except BaseException as raised:
        result, error = None, raised
    took = loop.time() - began
    if took > longest:
        return f"took {took:.1f} s and ended with {error!r}"
    if how == ENDS:
        return "" if error is None else repr(error)
    if error is None:
        return f"returned {result!r}"
    if not isinstance(error, Unreachable | TimedOut):
        return repr(error)
    if away == "refuses" and not isinstance(error, ConnectionError):
        return f"is no ConnectionError: {error!r}"
    return "" if how == RAISES_SOONER or took >= 0.9 * RETRY_TIMEOUT else f"gave up after {took:.2f} s: {error}"


def stream_of(name: str, attempt: int) -> str:
    """The stream of a case: another one for each time that it is prepared."""
    return name.replace("_", "-") + (f"-{attempt}" if attempt else "")


async def on_asyncio(between: Ways, how: str) -> dict[str, str]:
    clients, few = [], asyncio.Semaphore(AT_ONCE)

    async def make(name: str, prepare: Any) -> Any:
        async with few:
            for attempt in range(MOST_PREPARATIONS):
                client = await aio.connect(between.controller.address, retry_timeout=RETRY_TIMEOUT, wait=60)
                between.lead(client.session)
                clients.append(client)
                try:
                    return await prepare(World(client, stream_of(name, attempt)))
                except Unavailable:
                    if attempt == MOST_PREPARATIONS - 1:
                        raise

    calls = await asyncio.gather(*(make(name, prepare) for name, (prepare, _) in CASES.items()))
    longest, began = bound(), asyncio.get_running_loop().time()
    await between.break_off(how)
    found = await asyncio.gather(
        *(
            outcome(lambda call=call: wait(call()), ending, began, how, longest)
            for call, (_, ending) in zip(calls, CASES.values(), strict=True)
        )
    )
    await asyncio.gather(*(client.close() for client in clients))
    return dict(zip(CASES, found, strict=True))


def run(work: Any) -> Any:
    """Run a coroutine that never waits: on the blocking client everything has happened when a call returns."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")


async def on_blocking(between: Ways, how: str) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    threads, few = ThreadPoolExecutor(len(CASES)), ThreadPoolExecutor(AT_ONCE)

    clients: list[Any] = []

    def make(name: str, prepare: Any) -> Any:
        for attempt in range(MOST_PREPARATIONS):
            client = sarit.connect(between.controller.address, retry_timeout=RETRY_TIMEOUT, wait=60)
            between.lead(client._inner.session)
            clients.append(client)
            try:
                return run(prepare(World(client, stream_of(name, attempt))))
            except Unavailable:
                if attempt == MOST_PREPARATIONS - 1:
                    raise

    made = await asyncio.gather(
        *(loop.run_in_executor(few, make, name, prepare) for name, (prepare, _) in CASES.items())
    )
    longest, began = bound(), loop.time()
    await between.break_off(how)

    async def act(call: Any) -> Any:
        return await loop.run_in_executor(threads, lambda: run(wait(call())))

    calls = [(call, ending) for call, (_, ending) in zip(made, CASES.values(), strict=True)]
    found = await asyncio.gather(
        *(outcome(lambda call=call: act(call), ending, began, how, longest) for call, ending in calls)
    )
    await asyncio.gather(*(loop.run_in_executor(threads, client.close) for client in clients))
    threads.shutdown()
    few.shutdown()
    return dict(zip(CASES, found, strict=True))


# The blocking client is generated from the asyncio one: with a silent node it is tried by `make prove` alone.
WAYS = [
    pytest.param(on_asyncio, "refuses", id="asyncio-refuses"),
    pytest.param(on_asyncio, "silent", id="asyncio-silent"),
    pytest.param(on_blocking, "refuses", id="blocking-refuses"),
    pytest.param(on_blocking, "silent", id="blocking-silent", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("run_cases", "how"), WAYS)
def test_every_method_without_a_node_raises_unavailable_in_time(tmp_path, run_cases, how) -> None:
    """Half of them waited 30 s whatever `retry_timeout` said, and management calls did not retry at all."""

    async def go() -> dict[str, str]:
        async with ways(tmp_path) as between:
            return await run_cases(between, how)

    wrong = {name: what for name, what in asyncio.run(go()).items() if what}
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in sorted(wrong.items()))


@pytest.mark.parametrize("how", ["refuses", "silent"])
def test_connect_without_a_node_fails_soon(tmp_path, how) -> None:
    async def go() -> None:
        async with ways(tmp_path) as between:
            await between.break_off(how)
            loop = asyncio.get_running_loop()
            began = loop.time()
            kind = {"refuses": ConnectionError, "silent": TimeoutError}[how]
            with pytest.raises(kind, match="is the node running|did not answer") as raised:
                await aio.connect(between.controller.address)
            assert loop.time() - began < CONTROLLER_PING_SECONDS + 5
            assert isinstance(raised.value, Unavailable)

    asyncio.run(go())


def test_connect_waits_for_a_node_that_comes(tmp_path) -> None:
    async def go() -> None:
        async with ways(tmp_path) as between:
            await between.controller.refuse()
            connecting = asyncio.ensure_future(aio.connect(between.controller.address, wait=30))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(connecting), 0.2)
            await between.controller.start()
            client = await connecting
            await client.close()

    asyncio.run(go())
