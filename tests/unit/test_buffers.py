"""The pool of bodies: its bound, its stock, and what it gives back when nobody needs it."""

import pytest

from holdfast.common.limits import MIB
from holdfast.common.net.frames.buffers import Body, BufferPool


def take(pool: BufferPool, size: int) -> Body:
    """A body that the pool must have."""
    body = pool.take(size)
    assert body is not None
    return body


def memory_of(body: Body) -> object:
    """The buffer below a body, to tell whether it is the same one."""
    return body.view.obj


def test_a_buffer_given_back_is_used_again_until_the_pool_was_idle() -> None:
    """Between two trims without a use the stock is given up; a use in between keeps it."""
    pool = BufferPool(64 * MIB)
    body = take(pool, MIB)
    first = memory_of(body)
    body.release()
    pool.trim()  # it was of use since the last one
    body = take(pool, MIB)
    assert memory_of(body) is first
    body.release()
    pool.trim()
    pool.trim()
    assert memory_of(take(pool, MIB)) is not first


@pytest.mark.parametrize(("stock_bytes", "kept"), [(2 * MIB, 2), (4 * MIB, 4)])
def test_the_stock_has_a_bound(stock_bytes: int, kept: int) -> None:
    """Of the buffers given back no more are kept than the bound allows."""
    pool = BufferPool(64 * MIB, stock_bytes)
    bodies = [take(pool, MIB) for _ in range(6)]
    before = {id(memory_of(body)): memory_of(body) for body in bodies}
    for body in bodies:
        body.release()
    again = [take(pool, MIB) for _ in range(6)]
    assert sum(id(memory_of(body)) in before for body in again) == kept
    assert pool.used_bytes == 6 * MIB
