"""Cluster: each slice has its rank and reaches every other slice; the slices are stand-ins."""

import gc

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hw.cluster_top import BETWEEN_UNITS, Cluster
from hw.layouts.barriers import BarrierOp
from hw.params import TmaParams
from hw.top import tma_ports


class Echo(wiring.Component):
    """Unit that forwards: remote stores as packets, remote commands as messages.

    The data of a remote store is the mask of its receivers. A packet that arrives becomes an error,
    a message that arrives becomes a write to the barriers.
    """

    def __init__(self, params: TmaParams):
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, _platform):
        m = Module()
        store, packet, error = self.remote_store, self.packet_out, self.error
        m.d.comb += [
            packet.valid.eq(store.valid),
            store.ready.eq(packet.ready),
            packet.p.mask.eq(store.p.data),
            packet.p.payload.cta.eq(self.cta_rank),
            packet.p.payload.request_id.eq(store.p.request_id),
            error.valid.eq(self.packet_in.valid),
            self.packet_in.ready.eq(error.ready),
            error.p.cta.eq(self.packet_in.p.cta),
            error.p.request_id.eq(self.packet_in.p.request_id),
            error.p.value.eq(self.running),
            self.message_out.valid.eq(self.remote_command.valid),
            self.remote_command.ready.eq(self.message_out.ready),
            self.message_out.payload.eq(self.remote_command.payload),
            self.message_in.ready.eq(1),
            self.barrier_memory.write_en.eq(self.message_in.valid),
            self.barrier_memory.write_address.eq(self.message_in.p.address[3:]),
            self.barrier_memory.write_data.eq(self.message_in.p.request_id),
        ]
        return m


@pytest.mark.parametrize("ctas", [3, pytest.param(16, marks=pytest.mark.regress)])
def test_everybody_reaches_everybody(ctas):
    """Each CTA sends a packet to all others and a message to each; ranks and ``running`` arrive."""
    params = TmaParams(ctas=ctas, line_bytes=16)
    dut = Cluster(params, Echo)
    sms = [getattr(dut, f"sm_{rank}") for rank in range(ctas)]
    everybody = (1 << ctas) - 1
    running = everybody & 0b1010_1010_1010_1010
    packets: set[tuple[int, int]] = set()
    messages: set[tuple[int, int, int]] = set()
    sim = Simulator(dut)
    sim.add_clock(1e-9)

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(dut.running, running)
        targets = [[to for to in range(ctas) if to != rank] for rank in range(ctas)]
        for rank, sm in enumerate(sms):
            ctx.set(sm.error.ready, 1)
            ctx.set(sm.remote_store.p.data, everybody & ~(1 << rank))
            ctx.set(sm.remote_store.p.request_id, 100 + rank)
            ctx.set(sm.remote_store.valid, 1)
        for _ in range(4 * ctas + 20):
            for rank, sm in enumerate(sms):
                command = sm.remote_command
                ctx.set(command.valid, bool(targets[rank]))
                if targets[rank]:
                    update = {
                        "op": BarrierOp.ARRIVE,
                        "address": 8 * rank,
                        "request_id": 1000 + targets[rank][0],
                    }
                    ctx.set(command.p, {"holder": targets[rank][0], "update": update})
            stores = [sm for sm in sms if ctx.get(sm.remote_store.ready)]
            sent = [rank for rank, sm in enumerate(sms) if ctx.get(sm.remote_command.ready)]
            for rank, sm in enumerate(sms):
                if ctx.get(sm.error.valid):
                    record = ctx.get(sm.error.p)
                    assert record.request_id == 100 + record.cta
                    assert record.value == running
                    assert (record.cta, rank) not in packets
                    packets.add((record.cta, rank))
                memory = sm.barrier_memory
                if ctx.get(memory.write_en):
                    sender, number = ctx.get(memory.write_address), ctx.get(memory.write_data)
                    assert (sender, rank, number) not in messages
                    messages.add((sender, rank, number))
            await ctx.tick()
            for sm in stores:
                ctx.set(sm.remote_store.valid, 0)
            for rank in sent:
                if targets[rank]:
                    targets[rank].pop(0)

    sim.run()
    pairs = {(a, b) for a in range(ctas) for b in range(ctas) if a != b}
    assert packets == pairs
    assert messages == {(a, b, 1000 + b) for a, b in pairs}


@pytest.fixture
def silent(monkeypatch):
    """Silence the warning about a cluster that is never elaborated."""
    monkeypatch.setattr(Cluster, "_MustUse__silence", True, raising=False)
    yield
    gc.collect()


@pytest.mark.usefixtures("silent")
def test_ports():
    """A slice has the ports of a unit, without those that the cluster connects."""
    params = TmaParams(ctas=3)
    members = Cluster(params, Echo).signature.members
    assert set(members) == {"sm_0", "sm_1", "sm_2", "running"}
    assert set(members["sm_1"].signature.members) == set(tma_ports(params)) - set(BETWEEN_UNITS)


@pytest.mark.usefixtures("silent")
def test_a_cluster_has_several():
    with pytest.raises(ValueError, match="ctas = 1: must be at least 2"):
        Cluster(TmaParams())
