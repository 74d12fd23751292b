"""When the allocator is asked to give back what is free."""

import asyncio
import itertools

from holdfast.common.system.idle import GROWN_BYTES, TRIM_SECONDS, TRIM_SECONDS_MAX, Idle


def trims(memory: list[int]) -> list[int]:
    """At which of these seconds, each with so much memory, the allocator was asked."""

    async def story() -> list[int]:
        now = 0
        asked: list[int] = []
        idle = Idle(lambda: memory[now])
        idle._trim = lambda _: asked.append(now)
        for second in range(1, len(memory)):
            now = second
            idle.tick()
            await asyncio.get_running_loop().run_in_executor(None, int)  # behind what was asked for
        return asked

    return asyncio.run(story())


def test_a24_memory_that_grew_is_asked_for_and_more_and_more_seldom_in_vain() -> None:
    """Nothing while it is as large as at its least; soon after it grew; then at longer and longer pauses while nothing
    changes, up to the longest; and soon again when much has come or gone."""
    small, large = GROWN_BYTES, 10 * GROWN_BYTES
    assert trims([small] * 200) == []
    asked = trims([small] * 31 + [large] * 1_000)
    assert asked[0] - 31 < TRIM_SECONDS
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == TRIM_SECONDS_MAX
    again = trims([small] * 31 + [large] * 1_000 + [2 * large] * 20)
    assert again[: len(asked)] == asked
    assert again[len(asked)] - 1_031 < TRIM_SECONDS
