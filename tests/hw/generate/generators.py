"""The blocks of the generator behind a source of jobs that keeps to the credits of each channel."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.generator_lane import GeneratorLane
from hw.generate.request_generator import RequestGenerator
from hw.generate.walk_generator import WalkGenerator
from hw.layouts.jobs import generator_job_layout, prepared_walk_layout
from hw.layouts.lines import fill_beat_layout, line_request_layout, store_line_layout
from hw.params import TmaParams


class Credited(wiring.Component):
    """The walk generator behind a stream of jobs, as the request queue lets them come.

    A request waits at ``i`` while its channel has ``requests_waiting`` requests in the generator.

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    freed : Out(channels), as of ``WalkGenerator``
    """

    def __init__(self, params: TmaParams, ports: dict) -> None:
        self.params = params
        job = stream.Signature(generator_job_layout(params))
        super().__init__({"i": In(job), "freed": Out(params.channels), **ports})

    def generator(self, m: Module) -> WalkGenerator:
        """Add the walk generator and the credits; return the generator."""
        p = self.params
        m.submodules.generator = generator = WalkGenerator(p)
        in_request = Signal()
        may_pass = Signal()
        job, enters = self.i.p, self.i.valid & self.i.ready
        for number in range(p.channels):
            used = Signal(range(p.requests_waiting + 1), name=f"used_{number}")
            is_mine = job.channel == number
            with m.If(is_mine):
                m.d.comb += may_pass.eq(in_request | (used != p.requests_waiting))
            m.d.sync += used.eq(used + (enters & ~in_request & is_mine) - generator.freed[number])
        m.d.comb += [
            self.i.ready.eq(may_pass),
            self.freed.eq(generator.freed),
            generator.load.payload.eq(self.i.payload),
            generator.load.valid.eq(enters & (job.channel != p.streams)),
        ]
        if p.stores:
            m.d.comb += [
                generator.store.p.slot.eq(job.slot),
                generator.store.valid.eq(enters & (job.channel == p.streams)),
            ]
        with m.If(enters):
            m.d.sync += in_request.eq(~job.last)
        return generator


class Walks(Credited):
    """The walks of each stream, ``walk_0`` and so on, and those of stores, ``store_walk``."""

    def __init__(self, params: TmaParams) -> None:
        walk = Out(stream.Signature(prepared_walk_layout(params)))
        ports = {f"walk_{number}": walk for number in range(params.streams)}
        if params.stores:
            ports["store_walk"] = Out(stream.Signature(prepared_walk_layout(params)))
        super().__init__(params, ports)

    def elaborate(self, _platform) -> Module:
        m = Module()
        generator = self.generator(m)
        for number, walk in enumerate(generator.walk):
            connect(m, walk, flipped(getattr(self, f"walk_{number}")))
        if self.params.stores:
            connect(m, generator.store_walk, flipped(self.store_walk))
        return m


class Lines(Credited):
    """The lines and the fill of loads, and the lines of stores, ``store_line``."""

    def __init__(self, params: TmaParams) -> None:
        ports = {
            "line": Out(stream.Signature(line_request_layout(params))),
            "fill": Out(stream.Signature(fill_beat_layout(params))),
        }
        if params.stores:
            ports["store_line"] = Out(stream.Signature(store_line_layout(params)))
        super().__init__(params, ports)

    def elaborate(self, _platform) -> Module:
        m = Module()
        generator = self.generator(m)
        m.submodules.loads = loads = RequestGenerator(self.params)
        for walk, lane in zip(generator.walk, loads.walk, strict=True):
            connect(m, walk, lane)
        connect(m, loads.line, flipped(self.line))
        connect(m, loads.fill, flipped(self.fill))
        if self.params.stores:
            m.submodules.stores = stores = GeneratorLane(self.params, store=True)
            connect(m, generator.store_walk, stores.i)
            connect(m, stores.line, flipped(self.store_line))
        return m
