"""Checks of every stream inside a design, for simulation.

A stream keeps its payload, and goes on offering it, until it is taken. Blocks rely on that law, and
it is not checked in the Verilog that users get. ``checked_streams`` adds the check to each stream
port of each block, ``hw.flow.cache.generated`` does so if it is asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.hdl import Assert, Const, Fragment, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out


def stream_ports(component: wiring.Component) -> Iterator[tuple[str, Any]]:
    """Yield name and interface of each stream that ``component`` is the source of, and that can be
    refused.
    """
    for path, member in _members(component.signature, ()):
        signature = member.signature
        if member.flow is not Out or signature.always_ready:
            continue
        interfaces = component
        for name in path:
            interfaces = getattr(interfaces, name)
        yield from _elements(".".join(path), interfaces, member.dimensions)


def _members(signature, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], wiring.Member]]:
    """Yield path and member of each stream of ``signature``, also of those in its interfaces."""
    for name, member in signature.members.items():
        if not member.is_signature:
            continue
        if isinstance(member.signature, stream.Signature):
            yield (*path, name), member
        elif not member.dimensions:
            inner = member.signature if member.flow is Out else member.signature.flip()
            yield from _members(inner, (*path, name))


def _elements(name: str, interfaces, dimensions) -> Iterator[tuple[str, Any]]:
    """Yield the streams of an array of interfaces, or the only one."""
    if not dimensions:
        yield name, interfaces
        return
    for number, interface in enumerate(interfaces):
        yield from _elements(f"{name}[{number}]", interface, dimensions[1:])


@contextmanager
def checked_streams() -> Iterator[None]:
    """Add the checks to all blocks that are elaborated meanwhile."""
    get = Fragment.get

    def get_with_checks(block, platform) -> Fragment:
        fragment = get(block, platform)
        if isinstance(block, wiring.Component):
            kind = type(block).__name__
            for name, port in stream_ports(block):
                fragment.add_statements("sync", *_check(f"{kind}.{name}", port))
        return fragment

    # Amaranth has no hook for each block of a design; its version is pinned.
    Fragment.get = staticmethod(get_with_checks)
    try:
        yield
    finally:
        Fragment.get = staticmethod(get)


def _check(name: str, port) -> list:
    """Return the statements that check ``port``."""
    payload = Value.cast(port.payload)
    waited = Signal(name="law_waited")
    held = Signal(len(payload), name="law_payload", reset_less=True)
    keeps = payload == held if len(payload) else Const(1)
    return [
        waited.eq(port.valid & ~port.ready),
        held.eq(payload),
        Assert(~waited | port.valid, f"{name}: valid fell before the transfer\n"),
        Assert(~waited | ~port.valid | keeps, f"{name}: the payload changed before the transfer\n"),
    ]
