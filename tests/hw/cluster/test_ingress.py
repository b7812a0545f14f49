"""Ingress: packets become lines, receipts become completions, reductions are combined."""

import random

import pytest
from amaranth.sim import Simulator

from hw.cluster.ingress import Ingress
from hw.layouts.isa import ElementType, ReductionOp, Swizzle
from hw.params import TmaParams

CTAS, RANK = 4, 2
PARAMS = TmaParams(
    ctas=CTAS, cta_group_2=True, mbarrier_v1=True, report_mechanism=True, line_bytes=32
)
LANES = PARAMS.lanes
BEATS = 16


def packet(rng: random.Random, number: int, *, reduces: bool) -> dict:
    """Return a packet; a reduction adds 32-bit words."""
    style = Swizzle.NONE if reduces else Swizzle(rng.randrange(4))
    return {
        "request_id": number,
        "cta": rng.randrange(CTAS),
        "mbarrier": 8 * rng.randrange(64),
        "pair": {"enabled": rng.getrandbits(1), "parity": rng.getrandbits(1)},
        "tx_words": rng.randrange(1, 9),
        "reduction": {"enabled": reduces, "op": ReductionOp.ADD, "element_type": ElementType.U32},
        "style": {"swizzle": style},
        "beat": rng.randrange(BEATS),
        "boundary": 0 if reduces else rng.randrange(LANES),
        "valid": rng.randrange(1, 1 << LANES),
        "words": [15] * LANES,
        "data": [rng.getrandbits(128) for _ in range(LANES)],
        "reports": rng.getrandbits(1),
    }


def holder(sent: dict) -> int:
    pair = sent["pair"]
    return RANK & ~1 | pair["parity"] if pair["enabled"] else RANK


def added(memory_operand: int, source_operand: int) -> int:
    """Return the sums of the 32-bit words of two pieces."""
    words = range(0, 128, 32)
    mask = (1 << 32) - 1
    return sum(
        ((memory_operand >> at & mask) + (source_operand >> at & mask) & mask) << at for at in words
    )


@pytest.mark.parametrize("seed", range(3))
def test_packets(seed):
    """Plain packets pass unchanged, reductions with their results; each gives one completion."""
    rng = random.Random(seed)
    stall = (0, 0.3, 0.6)[seed]
    packets = [packet(rng, n, reduces=rng.random() < 0.4) for n in range(80)]
    memory = [[rng.getrandbits(128) for _ in range(LANES)] for _ in range(BEATS)]
    expected = {beat: list(lanes) for beat, lanes in enumerate(memory)}
    for sent in packets:
        if sent["reduction"]["enabled"]:
            for lane in range(LANES):
                if sent["valid"] >> lane & 1:
                    piece = expected[sent["beat"]][lane]
                    expected[sent["beat"]][lane] = added(piece, sent["data"][lane])
    dut = Ingress(PARAMS)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    completed: list[int] = []
    plain: list[int] = []

    @sim.add_testbench
    async def drive(ctx):
        ctx.set(dut.cta_rank, RANK)
        waiting = list(packets)
        writes: list = []  # lines on their way to shared memory
        answers: list = []
        taken_completion = None
        for _ in range(6000):
            for port, queue in ((dut.packet, waiting), (dut.written, writes)):
                if not ctx.get(port.valid) and queue and rng.random() >= stall:
                    head = queue[0]
                    if port is dut.written:
                        head = {"receipt": head}
                    ctx.set(port.payload, head)
                    ctx.set(port.valid, 1)
            if not ctx.get(dut.smem_data.valid) and answers and rng.random() >= stall:
                ctx.set(dut.smem_data.payload, answers.pop(0))
                ctx.set(dut.smem_data.valid, 1)
            ready = {name: rng.random() >= stall for name in ("line", "completion", "smem_read")}
            for name, value in ready.items():
                ctx.set(getattr(dut, name).ready, value)
            line = ctx.get(dut.line.payload) if transfers(ctx, dut.line) else None
            done = ctx.get(dut.completion.payload) if transfers(ctx, dut.completion) else None
            read = ctx.get(dut.smem_read.payload) if transfers(ctx, dut.smem_read) else None
            took = {
                name: transfers(ctx, getattr(dut, name))
                for name in ("packet", "written", "smem_data")
            }
            await ctx.tick()
            for name, was in took.items():
                if was:
                    ctx.set(getattr(dut, name).valid, 0)
            if took["packet"]:
                waiting.pop(0)
            if took["written"]:
                receipt = writes.pop(0)
                if receipt["reduced"]:  # the write is performed now
                    beat, lanes = receipt_write.pop(0)
                    memory[beat] = lanes
            if line is not None:
                take_line(line, writes)
            if read is not None:
                answers.append([memory[read[lane].beat][lane] for lane in range(LANES)])
            if done is not None:
                check_completion(done)
                taken_completion = done
            if len(completed) == len(packets):
                return
        raise AssertionError(f"{len(completed)} of {len(packets)}; last {taken_completion}")

    receipt_write: list = []

    def transfers(ctx, port) -> bool:
        return ctx.get(port.valid) and ctx.get(port.ready)

    def take_line(line, writes) -> None:
        receipt = line.receipt
        sent = packets[receipt.request_id]
        assert receipt.received
        assert receipt.reduced == sent["reduction"]["enabled"]
        assert (line.beat, line.next_beat, line.boundary, line.valid) == (
            sent["beat"],
            sent["beat"] + 1,
            sent["boundary"],
            sent["valid"],
        )
        assert list(line.words) == sent["words"]
        if receipt.reduced:
            lanes = list(memory[line.beat])
            for lane in range(LANES):
                if line.valid >> lane & 1:
                    lanes[lane] = line.data[lane]
            receipt_write.append((line.beat, lanes))
        else:
            plain.append(receipt.request_id)
            assert line.style.swizzle == sent["style"]["swizzle"]
            assert list(line.data) == sent["data"]
        names = ("request_id", "cta", "holder", "mbarrier", "tx_words", "reports")
        writes.append({name: receipt[name] for name in ("received", "reduced", *names)})

    def check_completion(done) -> None:
        sent = packets[done.request_id]
        assert (done.cta, done.holder) == (sent["cta"], holder(sent))
        assert done.reports == sent["reports"]
        assert (done.address, done.tx_bytes) == (sent["mbarrier"], 4 * sent["tx_words"])
        completed.append(done.request_id)

    sim.run()
    assert sorted(completed) == list(range(len(packets)))
    assert plain == [n for n, sent in enumerate(packets) if not sent["reduction"]["enabled"]]
    assert memory == [expected[beat] for beat in range(BEATS)]
