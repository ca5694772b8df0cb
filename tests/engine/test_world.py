"""Time is handed in: sleeps move a manual clock, and many coroutines share one (D-CLOCK)."""

from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.service import drive
from engine.world import (
    EPOCH_2026_NS,
    Bell,
    Call,
    CallAnswer,
    ManualClock,
    ModelWorld,
    Sleep,
    VirtualLoop,
)

CALL = Call("GET", "https://example.com/", {}, b"")


def test_a_manual_clock_moves_only_forward_and_takes_wall_time_along() -> None:
    clock = ManualClock(100)
    clock.advance_ns(5)
    assert (clock.now_ns, clock.wall_ns) == (105, EPOCH_2026_NS + 5)
    with pytest.raises(ValueError, match="by_ns = -1 must not be negative"):
        clock.advance_ns(-1)


def test_driving_a_coroutine_moves_the_clock_by_its_sleeps() -> None:
    world = ModelWorld()

    async def nap() -> str:
        await world.sleep_ns(30)
        await world.sleep_ns(0)
        await world.sleep_ns(12)
        return "rested"

    assert drive(nap(), world.clock) == "rested"
    assert world.clock.now_ns == 42


def test_driving_by_hand_refuses_what_is_not_of_this_world() -> None:
    async def stray() -> None:
        await _Stray()

    class _Stray:
        def __await__(self) -> Generator[str, None, None]:
            yield "asyncio's future"

    with pytest.raises(TypeError, match="cannot drive str by hand"):
        drive(stray(), ManualClock())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_a_virtual_loop_runs_in_order_of_time_then_arrival(naps: list[tuple[int, int]]) -> None:
    loop = VirtualLoop(ManualClock())
    order: list[tuple[int, int]] = []

    async def one(number: int, for_ns: int) -> None:
        await Sleep(for_ns)
        order.append((loop.clock.now_ns, number))

    for number, (start_ns, for_ns) in enumerate(naps):
        loop.at(start_ns, one(number, for_ns))
    loop.run()
    assert [at_ns for at_ns, _ in order] == sorted(s + n for s, n in naps)
    assert sorted(number for _, number in order) == list(range(len(naps)))


def test_a_virtual_loop_stops_before_its_end_instant() -> None:
    loop = VirtualLoop(ManualClock())

    async def nap() -> None:
        await Sleep(10)

    task = loop.at(0, nap())
    loop.run(until_ns=10)
    before = task.done
    assert not before
    loop.run()
    assert task.done
    assert task.ended_ns == 10


def test_a_bell_ends_one_sleep_early_and_no_other() -> None:
    loop = VirtualLoop(ManualClock())
    bell = Bell()
    woken: list[int] = []

    async def sleeper() -> None:
        await Sleep(50, bell)
        woken.append(loop.clock.now_ns)
        await Sleep(50)
        woken.append(loop.clock.now_ns)

    async def ringer(after_ns: int) -> None:
        await Sleep(after_ns)
        bell.ring()

    bell.ring()  # wakes nobody: nobody sleeps
    loop.at(0, sleeper())
    loop.at(0, ringer(20))
    loop.at(0, ringer(30))
    loop.run()
    assert woken == [20, 70]
    assert loop.clock.now_ns == 70


def test_a_bell_that_never_rings_changes_nothing() -> None:
    world = ModelWorld()
    drive(world.sleep_ns(30, Bell()), world.clock)
    assert world.clock.now_ns == 30


def _world(duration_ns: int, answer: CallAnswer | None) -> ModelWorld:
    return ModelWorld(destination=lambda _: (duration_ns, answer))


def test_a_destination_that_takes_exactly_its_time_passes() -> None:
    world = _world(25, CallAnswer(200, {}, b"ok"))
    assert drive(world.call_destination(CALL, 25), world.clock).body == b"ok"
    assert world.clock.now_ns == 25


def test_a_destination_that_takes_longer_times_out_at_its_bound() -> None:
    world = _world(26, CallAnswer(200, {}, b"ok"))
    with pytest.raises(DestinationTimeout):
        drive(world.call_destination(CALL, 25), world.clock)
    assert world.clock.now_ns == 25


def test_a_destination_without_an_answer_is_unreachable() -> None:
    world = _world(3, None)
    with pytest.raises(DestinationUnreachable):
        drive(world.call_destination(CALL, 25), world.clock)


def test_code_runs_after_its_service_time_and_times_out_at_its_bound() -> None:
    world = ModelWorld(
        runtime=lambda code, args, _: [code, args], service_ns=lambda code, _: len(code)
    )
    assert drive(world.run_code("abc", 1, {}, 3), world.clock) == ["abc", 1]
    assert world.clock.now_ns == 3
    with pytest.raises(DestinationTimeout):
        drive(world.run_code("abcd", 1, {}, 3), world.clock)
    assert world.clock.now_ns == 6


def test_a_call_shows_neither_headers_nor_body() -> None:
    shown = repr(Call("GET", "https://example.com/", {"SVC-API-KEY": "secret"}, b"4242"))
    assert "secret" not in shown
    assert "4242" not in shown
