"""Egress: each line, fill, DSMEM line and remote store reaches its receivers and is counted."""

import random
from dataclasses import replace

import pytest

from hw.cluster.egress import Egress
from hw.layouts.isa import ElementType, Fill, ReductionOp, Swizzle
from hw.params import TmaParams
from tests.hw.simulate import Run, run_streams

CTAS, RANK, SLOTS = 3, 1, 4
PARAMS = TmaParams(
    ctas=CTAS,
    cta_group_2=True,
    mbarrier_v1=True,
    report_mechanism=True,
    line_bytes=32,
    requests_in_flight=SLOTS,
    tags=4,
)
LANES = PARAMS.lanes
OUTPUTS = ["packet", "written", "receiver_absent", "performed"]
ALL = (1 << CTAS) - 1
NAN_PIECE = int.from_bytes(bytes.fromhex("f77f") * 8, "little")


def transfer(slot: int, mask: int, *, store: bool = False) -> dict:
    """Return the transfer of a slot."""
    return {
        "request_id": 100 * store + slot,
        "mbarrier": 8 * (slot + 1) + 1024 * store,
        "pieces": 9,
        "delivery": {
            "remote": 1,
            "mask": mask,
            "pair": {"enabled": not store, "parity": slot % 2},
        },
    }


def prepared(masks: list[int], running: int = ALL):
    """Return a function that opens all slots; a DSMEM request has one receiver of its mask."""

    async def prepare(ctx, dut):
        ctx.set(dut.cta_rank, RANK)
        ctx.set(dut.running, running)
        for slot, mask in enumerate(masks):
            for store, port in ((False, dut.load_opened), (True, dut.store_opened)):
                chosen = mask & -mask if store else mask
                ctx.set(
                    port,
                    {
                        "valid": 1,
                        "slot": slot,
                        "transfer": transfer(slot, chosen, store=store),
                    },
                )
            await ctx.tick()
        ctx.set(dut.load_opened.valid, 0)
        ctx.set(dut.store_opened.valid, 0)

    return prepare


def send(inputs: dict, masks: list[int], running: int = ALL, **options) -> Run:
    dut = Egress(PARAMS)
    ports = {name: inputs.get(name, []) for name in ("line", "fill", "dsmem", "thread")}
    prepare = prepared(masks, running)
    return run_streams(dut, ports, OUTPUTS, prepare=lambda ctx: prepare(ctx, dut), **options)


def line(rng: random.Random, slot: int, valid: int | None = None) -> dict:
    valid = rng.randrange(1, 1 << LANES) if valid is None else valid
    return {
        "slot": slot,
        "remote": 1,
        "style": {"swizzle": Swizzle(rng.randrange(4))},
        "beat": rng.randrange(64),
        "boundary": rng.randrange(LANES),
        "pieces": valid.bit_count() or 2,
        "valid": valid,
        "words": [rng.randrange(1, 16) for _ in range(LANES)],
        "data": [rng.getrandbits(128) for _ in range(LANES)],
        "reports": rng.getrandbits(1),
    }


def fill(rng: random.Random, slot: int, *, last: bool, valid: int | None = None) -> dict:
    return {
        "slot": slot,
        "remote": 1,
        "style": {"swizzle": Swizzle(rng.randrange(4)), "fill": rng.choice([Fill.ZERO, Fill.NAN])},
        "beat": rng.randrange(64),
        "valid": rng.randrange(1, 1 << LANES) if valid is None else valid,
        "last": last,
    }


def dsmem(rng: random.Random, slot: int, *, last: bool) -> dict:
    return {
        "slot": slot,
        "last": last,
        "line": rng.randrange(64),
        "valid": rng.randrange(1, 1 << LANES),
        "write_mode": {
            "remote": 1,
            "reduction": {
                "enabled": slot & 1,
                "op": ReductionOp.MAX,
                "element_type": ElementType.U32,
            },
        },
        "data": [rng.getrandbits(128) for _ in range(LANES)],
    }


def thread(rng: random.Random, number: int) -> dict:
    return {
        "request_id": 1000 + number,
        "dst_cta": rng.randrange(CTAS),
        "address": 16 * rng.randrange(128),
        "mbarrier": 8 * rng.randrange(128),
        "reduction": {
            "enabled": number & 1,
            "op": ReductionOp.XOR,
            "element_type": ElementType.U32,
        },
        "words": rng.choice([1, 2, 3, 12, 15]),
        "data": rng.getrandbits(128),
    }


def addressed(slot: int, *, store: bool = False) -> dict:
    about = transfer(slot, 0, store=store)
    return {
        "cta": RANK,
        "request_id": about["request_id"],
        "mbarrier": about["mbarrier"],
        "pair": about["delivery"]["pair"],
    }


def packet_of(kind: str, item: dict, masks: list[int]) -> tuple[int, dict]:
    """Return the receivers of an item, and the packet that they get."""
    if kind == "line":
        where = ("style", "beat", "boundary", "valid", "words", "data", "reports")
        words = 4 * item["pieces"] if item["valid"] else None
        packet = addressed(item["slot"]) | {name: item[name] for name in where}
        return masks[item["slot"]] if item["valid"] else 0, packet | {"tx_words": words}
    if kind == "fill":
        piece = NAN_PIECE if item["style"]["fill"] == Fill.NAN else 0
        packet = addressed(item["slot"]) | {
            "style": item["style"],
            "beat": item["beat"],
            "boundary": 0,
            "valid": item["valid"],
            "words": [15] * LANES,
            "data": [piece] * LANES,
            "reports": 0,
            "tx_words": 4 * item["valid"].bit_count(),
        }
        return masks[item["slot"]] if item["valid"] else 0, packet
    if kind == "dsmem":
        mask = masks[item["slot"]]
        return mask & -mask, addressed(item["slot"], store=True) | {
            "beat": item["line"],
            "boundary": 0,
            "valid": item["valid"],
            "words": [15] * LANES,
            "data": item["data"],
            "reports": 0,
            "tx_words": 4 * item["valid"].bit_count(),
            "reduction": item["write_mode"]["reduction"],
        }
    address = item["address"]
    return 1 << item["dst_cta"], {
        "cta": RANK,
        "request_id": item["request_id"],
        "mbarrier": item["mbarrier"],
        "pair": {"enabled": 0},
        "beat": address // PARAMS.line_bytes,
        "valid": 1 << address // 16 % LANES,
        "words": [item["words"]] * LANES,
        "data": [item["data"]] * LANES,
        "reports": 0,
        "tx_words": item["words"].bit_count(),
        "reduction": item["reduction"],
    }


def agrees(packet, expected: dict) -> bool:
    """Return whether ``packet`` has the fields of ``expected``; None matches any value."""
    for name, value in expected.items():
        got = packet[name]
        if isinstance(value, dict):
            if not agrees(got, value):
                return False
        elif isinstance(value, list):
            if list(got) != value:
                return False
        elif value is not None and got != value:
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_packets(seed):
    """All sources at once: each packet is right, and those of a source are in order."""
    rng = random.Random(seed)
    masks = [rng.randrange(1, ALL + 1) for _ in range(SLOTS)]
    inputs = {
        "line": [line(rng, rng.randrange(SLOTS)) for _ in range(60)],
        "fill": [fill(rng, n // 3 % SLOTS, last=n % 3 == 2) for n in range(60)],
        "dsmem": [dsmem(rng, n // 2 % SLOTS, last=n % 2 == 1) for n in range(60)],
        "thread": [thread(rng, n) for n in range(60)],
    }
    stall = (0, 0.3, 0.5, 0.8)[seed]
    run = send(inputs, masks, seed=seed, stall=stall)
    waiting = {kind: list(items) for kind, items in inputs.items()}
    for out in run.payloads["packet"]:
        for kind, items in waiting.items():
            if items:
                mask, packet = packet_of(kind, items[0], masks)
                if out.mask == mask and agrees(out.payload, packet):
                    items.pop(0)
                    break
        else:
            raise AssertionError(f"no source sent {out}")
    assert not any(waiting.values())

    reported: dict[int, int] = {}
    for report in run.payloads["written"]:
        reported[report.slot] = reported.get(report.slot, 0) + report.pieces
    for slot in range(SLOTS):
        pieces = sum(item["pieces"] for item in inputs["line"] if item["slot"] == slot)
        pieces += sum(item["valid"].bit_count() for item in inputs["fill"] if item["slot"] == slot)
        assert reported.get(slot, 0) == pieces
    fills = [report for report in run.payloads["written"] if report.pieces > LANES]
    assert fills, "fill is reported as a whole"
    ends = [
        (report.slot, report.total_valid, report.failed) for report in run.payloads["performed"]
    ]
    assert ends == [(item["slot"], 1, 0) for item in inputs["dsmem"] if item["last"]]
    assert not run.payloads["receiver_absent"]


def test_fill_of_streams_is_counted_apart():
    """The fill of two interleaved requests is reported once for each."""
    rng = random.Random(1)
    beats = [fill(rng, n % 2, last=n >= 8) | {"stream": n % 2} for n in range(10)]
    dut = Egress(replace(PARAMS, streams=2))
    prepare = prepared([ALL] * SLOTS)
    run = run_streams(dut, {"fill": beats}, OUTPUTS, prepare=lambda ctx: prepare(ctx, dut))
    reports = [(report.slot, report.pieces) for report in run.payloads["written"]]
    assert reports == [
        (slot, sum(beat["valid"].bit_count() for beat in beats[slot::2])) for slot in range(2)
    ]


def test_a_packet_a_clock():
    """One source alone, and two together: one packet per clock."""
    rng = random.Random(7)
    lines = [line(rng, 0) for _ in range(50)]
    run = send({"line": lines}, [ALL] * SLOTS, stall=0)
    cycles = run.cycles["packet"]
    assert cycles == list(range(cycles[0], cycles[0] + 50))
    assert cycles[0] == run.taken["line"][0] + 1
    threads = [thread(rng, n) for n in range(50)]
    run = send({"line": lines, "thread": threads}, [ALL] * SLOTS, stall=0)
    cycles = run.cycles["packet"]
    assert cycles == list(range(cycles[0], cycles[0] + 100))


def test_nothing_to_write():
    """A line that could not be read, and an empty end of fill, are counted but not sent."""
    rng = random.Random(8)
    failed = line(rng, 2, valid=0)
    run = send({"line": [failed], "fill": [fill(rng, 3, last=True, valid=0)]}, [ALL] * SLOTS)
    assert [out.mask for out in run.payloads["packet"]] == [0, 0]
    reports = {(report.slot, report.pieces) for report in run.payloads["written"]}
    assert reports == {(2, failed["pieces"]), (3, 0)}


@pytest.mark.parametrize("seed", range(3))
def test_receiver_is_absent(seed):
    """The other receivers get the packet; the absent one is reported before the pieces."""
    rng = random.Random(seed)
    absent = 2
    running = ALL & ~(1 << absent)
    masks = [0b111, 0b100, 0b011, 0b110]
    lines = [line(rng, slot) for slot in range(SLOTS)]
    stores = [dsmem(rng, slot, last=True) for slot in range(SLOTS)]
    run = send({"line": lines, "dsmem": stores}, masks, running, seed=seed, stall=0.4)
    loads = {out.payload.request_id: out.mask for out in run.payloads["packet"]}
    assert loads == {
        **{slot: mask & running for slot, mask in enumerate(masks)},
        **{100 + slot: mask & -mask & running for slot, mask in enumerate(masks)},
    }
    reported = {report.slot: report.receiver for report in run.payloads["receiver_absent"]}
    assert reported == {0: absent, 1: absent, 3: absent}
    assert len(run.payloads["receiver_absent"]) == 3
    when = dict(
        zip(
            (r.slot for r in run.payloads["receiver_absent"]),
            run.cycles["receiver_absent"],
            strict=True,
        )
    )
    for report, cycle in zip(run.payloads["written"], run.cycles["written"], strict=True):
        assert when.get(report.slot, -1) < cycle
    failed = {
        r.slot: (r.failed, r.receiver_absent, r.line) for r in run.payloads["performed"] if r.failed
    }
    assert failed == {1: (1, 1, absent)}
