"""Streams in the simulations of timing diagrams: their drivers, and their waves."""

from collections.abc import Callable
from typing import Any

from amaranth.sim import Simulator

from tests.docs.waves import Wave

Text = str | Callable[[Any], str]


async def send(ctx: Any, port: Any, payload: Any) -> None:
    """Offer a payload from now on until it is taken."""
    ctx.set(port.payload, payload)
    ctx.set(port.valid, 1)
    await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


async def receive(ctx: Any, port: Any) -> Any:
    """Take a payload."""
    ctx.set(port.ready, 1)
    (payload,) = await ctx.tick().sample(port.payload).until(port.valid)
    ctx.set(port.ready, 0)
    return payload


def handshake(name: str, port: Any, **texts: Text) -> dict[str, Wave]:
    """Return the waves of a stream: ``valid``, ``ready``, and fields of the payload.

    The signals of AXI4 have their own names, without dots.
    """
    dot = "" if "_axi_" in name else "."
    waves = {f"{name}{dot}valid": Wave(port.valid), f"{name}{dot}ready": Wave(port.ready)}
    for field, text in texts.items():
        value = port.payload if field == "payload" else getattr(port.payload, field)
        waves[f"{name}{dot}{field}"] = Wave(value, text, port.valid)
    return waves


def lanes(name: str, port: Any) -> dict[str, Wave]:
    """Return the waves of a stream of lanes: ``valid``, ``ready``, and the beat of each lane."""
    beats = {
        f"{name}.payload[{n}].beat": Wave(lane.beat, hex, port.valid & lane.valid)
        for n, lane in enumerate(port.payload)
    }
    return handshake(name, port) | beats


def name_of(member: Any) -> str:
    """Return the name of a member of an enumeration in small letters, which take less width."""
    return str(member.name).lower()


def simulation(dut: Any) -> Simulator:
    """Return a simulator of a component."""
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    return simulator
