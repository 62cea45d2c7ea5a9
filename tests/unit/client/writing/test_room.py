"""How much a writer gathers before it looks at its bound."""

from tests.unit.client.world import on_loop


@on_loop
async def test_a_small_buffer_is_looked_at_after_as_little(world) -> None:
    world.controller.create("s/t")
    full = []
    for buffer_bytes, events in ((0, 65), (100 * 1024, 101), (1 << 25, 513)):
        writer = world.client.writer("s/t", buffer_bytes=buffer_bytes)
        writer.fronted(lambda: None, lambda: full.append(True), lambda: None)
        for number in range(events):
            assert not full, number
            writer.write(bytes(1024 - 8))
        assert full.pop()
        assert writer.pending_bytes() == events * 1024
        writer.fronted(writer.wake_soon, writer._pump_full, lambda: None)
        await writer.flush()
        await writer.close()
