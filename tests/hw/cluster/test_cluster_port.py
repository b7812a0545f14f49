"""Cluster port: each payload goes to the CTA, port and barrier that it is for, and none is lost."""

import random
from collections import Counter

import pytest

from hw.cluster.cluster_port import ClusterPort
from hw.layouts.barriers import BarrierOp
from hw.layouts.isa import ElementType, ErrorCode, ReductionOp, Swizzle
from tests.hw.cluster.test_egress import (
    ALL,
    CTAS,
    LANES,
    PARAMS,
    RANK,
    SLOTS,
    agrees,
    dsmem,
    fill,
    line,
    packet_of,
    prepared,
    thread,
)
from tests.hw.simulate import Run, run_streams
from tests.quick import quick

OUTPUTS = [
    "local_line",
    "local_fill",
    "load_written",
    "receiver_absent",
    "update",
    "error",
    "memory_store",
    "store_performed",
    "smem_read",
    "store_data",
    "packet_out",
    "message_out",
]
MASKS = [0b101, 0b100, 0b001, 0b111]
"""Receivers of each slot."""

OTHERS = [cta for cta in range(CTAS) if cta != RANK]


def packet(rng: random.Random, number: int) -> dict:
    """Return a packet of another CTA; one in three is a reduction."""
    reduces = number % 3 == 0
    return {
        "request_id": number,
        "cta": rng.choice(OTHERS),
        "mbarrier": 8 * rng.randrange(4),
        "tx_words": rng.randrange(1, 9),
        "reduction": {"enabled": reduces, "op": ReductionOp.ADD, "element_type": ElementType.U32},
        "style": {"swizzle": Swizzle.NONE},
        "beat": number % 64,
        "boundary": 0,
        "valid": rng.randrange(1, 1 << LANES),
        "words": [15] * LANES,
        "data": [rng.getrandbits(128) for _ in range(LANES)],
    }


def draw(rng: random.Random) -> dict[str, list[dict]]:
    """Return inputs for all ports but those of shared memory, a third of them for other CTAs."""

    def remote() -> int:
        return int(rng.random() < 0.35)

    fills: list[dict] = []
    for slot in range(8):
        is_remote = remote()
        beats = [fill(rng, slot % SLOTS, last=n == 2) for n in range(3)]
        fills += [beat | {"remote": is_remote} for beat in beats]
    stores = []
    for number in range(24):
        store = dsmem(rng, number % SLOTS, last=True)
        stores.append(store | {"write_mode": store["write_mode"] | {"remote": remote()}})
    return {
        "line": [line(rng, rng.randrange(SLOTS)) | {"remote": remote()} for _ in range(40)],
        "fill": fills,
        "store": stores,
        "performed": [{"slot": n % SLOTS, "answered": 1, "line": n} for n in range(24)],
        "written": [{"slot": n % SLOTS, "pieces": n + 1} for n in range(24)],
        "completion": [
            {"request_id": n, "cta": 0, "holder": n % CTAS, "address": 512, "tx_bytes": 16 * n}
            for n in range(24)
        ],
        "remote_command": [
            {
                "holder": rng.randrange(CTAS),
                "update": {"op": BarrierOp.ARRIVE, "address": 8 * n, "count": n, "request_id": n},
            }
            for n in range(24)
        ],
        "message_in": [
            {"op": BarrierOp.EXPECT_TX, "address": 8 * n, "count": n, "request_id": n}
            for n in range(24)
        ],
        "remote_store": [
            thread(rng, n) | ({"mbarrier": 4} if n % 8 == 7 else {}) for n in range(24)
        ],
        "packet_in": [packet(rng, n) for n in range(40)],
        "store_read": [[{"valid": 1, "beat": 1000 + n}] * LANES for n in range(24)],
        "smem_data": [],
    }


def answer(beat: int) -> list[int]:
    """Return what shared memory holds at ``beat``."""
    return [(beat + 1) * 0x9E3779B97F4A7C15 % (1 << 32) + lane for lane in range(LANES)]


def shared_memory():
    """Return a function that answers reads, and returns the receipts of packets."""
    lines = reads = 0

    def feed(run: Run, _cycle: int) -> dict[str, list]:
        nonlocal lines, reads
        new_lines = run.payloads["local_line"][lines:]
        new_reads = run.payloads["smem_read"][reads:]
        lines += len(new_lines)
        reads += len(new_reads)
        names = ("received", "request_id", "cta", "holder", "mbarrier", "tx_words", "reduced")
        receipts = [
            {"receipt": {name: each.receipt[name] for name in names}}
            for each in new_lines
            if each.receipt.received
        ]
        return {"written": receipts, "smem_data": [answer(read[0].beat) for read in new_reads]}

    return feed


def rtl(inputs: dict[str, list[dict]], running: int = ALL, **options) -> Run:
    """Run the block with an SM's shared memory around it."""
    dut = ClusterPort(PARAMS)
    prepare = prepared(MASKS, running)
    return run_streams(
        dut,
        inputs,
        OUTPUTS,
        feed=shared_memory(),
        prepare=lambda ctx: prepare(ctx, dut),
        **options,
    )


def check_local(inputs: dict[str, list[dict]], run: Run) -> None:
    """Compare what stays in the SM: it passes unchanged and in order."""

    def local(name: str) -> list[dict]:
        return [item for item in inputs[name] if not item["remote"]]

    own_lines = [out for out in run.payloads["local_line"] if not out.receipt.received]
    for out, sent in zip(own_lines, local("line"), strict=True):
        assert agrees(out, sent)
    for out, sent in zip(run.payloads["local_fill"], local("fill"), strict=True):
        assert agrees(out, sent)
    stores = [item for item in inputs["store"] if not item["write_mode"]["remote"]]
    for out, sent in zip(run.payloads["memory_store"], stores, strict=True):
        assert agrees(out, sent)
    assert [list(data) for data in run.payloads["store_data"]] == [
        answer(read[0]["beat"]) for read in inputs["store_read"]
    ]


def check_packets_in(inputs: dict[str, list[dict]], run: Run) -> None:
    """Compare the lines of packets: plain ones as they came, reductions with the sums."""
    received = [out for out in run.payloads["local_line"] if out.receipt.received]
    for reduces in (False, True):
        sent = [each for each in inputs["packet_in"] if each["reduction"]["enabled"] == reduces]
        lines = [out for out in received if out.receipt.reduced == reduces]
        for out, each in zip(lines, sent, strict=True):
            assert agrees(out, {name: each[name] for name in ("beat", "valid", "words")})
            assert out.receipt.request_id == each["request_id"]
            data = each["data"]
            if reduces:
                data = [
                    add_words(mine, theirs)
                    for mine, theirs in zip(answer(each["beat"]), data, strict=True)
                ]
            valid = [lane for lane in range(LANES) if each["valid"] >> lane & 1]
            assert [out.data[lane] for lane in valid] == [data[lane] for lane in valid]


def add_words(a: int, b: int) -> int:
    """Return the sums of the 32-bit words of two pieces."""
    mask = (1 << 32) - 1
    return sum(((a >> at & mask) + (b >> at & mask) & mask) << at for at in range(0, 128, 32))


def check_packets_out(inputs: dict[str, list[dict]], run: Run) -> None:
    """Compare the packets: each is that of the next item of some source."""
    legal = [each for each in inputs["remote_store"] if each["mbarrier"] != 4]
    waiting = {
        "line": [item for item in inputs["line"] if item["remote"]],
        "fill": [item for item in inputs["fill"] if item["remote"]],
        "dsmem": [item for item in inputs["store"] if item["write_mode"]["remote"]],
        "thread": legal,
    }
    for out in run.payloads["packet_out"]:
        for kind, items in waiting.items():
            if items:
                mask, expected = packet_of(kind, items[0], MASKS)
                if out.mask == mask and agrees(out.payload, expected):
                    items.pop(0)
                    break
        else:
            raise AssertionError(f"no source sent {out}")
    assert not any(waiting.values())
    errors = [(error.request_id, error.code) for error in run.payloads["error"]]
    assert errors == [
        (each["request_id"], ErrorCode.MBAR_ALIGN)
        for each in inputs["remote_store"]
        if each["mbarrier"] == 4
    ]


def check_reports(inputs: dict[str, list[dict]], run: Run) -> None:
    """Compare the counts that the trackers get."""
    pieces: Counter[int] = Counter()
    for item in inputs["written"]:
        pieces[item["slot"]] += item["pieces"]
    for item in inputs["line"]:
        pieces[item["slot"]] += item["pieces"] * item["remote"]
    for item in inputs["fill"]:
        pieces[item["slot"]] += item["valid"].bit_count() * item["remote"]
    reported: Counter[int] = Counter()
    for report in run.payloads["load_written"]:
        assert not report.receipt.received
        reported[report.slot] += report.pieces
    assert reported == pieces
    answered = [report for report in run.payloads["store_performed"] if report.answered]
    assert [(r.slot, r.line) for r in answered] == [
        (item["slot"], item["line"]) for item in inputs["performed"]
    ]
    ends = [report.slot for report in run.payloads["store_performed"] if report.total_valid]
    assert ends == [item["slot"] for item in inputs["store"] if item["write_mode"]["remote"]]


def check_barriers(inputs: dict[str, list[dict]], run: Run) -> None:
    """Compare the operations on barriers, by holder: bytes as sums, the others one by one."""
    tx: Counter[tuple[int, int]] = Counter()
    for item in inputs["completion"]:
        tx[item["holder"], item["address"]] += item["tx_bytes"]
    for each in inputs["packet_in"]:
        tx[RANK, each["mbarrier"]] += 4 * each["tx_words"]
    commands = {holder: [] for holder in range(CTAS)}
    updates = [(RANK, update) for update in run.payloads["update"]]
    updates += [(message.holder, message.update) for message in run.payloads["message_out"]]
    for holder, update in updates:
        if update.op == BarrierOp.COMPLETE_TX:
            tx[holder, update.address] -= update.count
        elif update.op == BarrierOp.ARRIVE:
            commands[holder].append(update.request_id)
    assert not any(tx.values())
    assert commands == {
        holder: [
            item["update"]["request_id"]
            for item in inputs["remote_command"]
            if item["holder"] == holder
        ]
        for holder in range(CTAS)
    }
    others = [u.request_id for u in run.payloads["update"] if u.op == BarrierOp.EXPECT_TX]
    assert others == [item["request_id"] for item in inputs["message_in"]]


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_all_paths_at_once(seed):
    """Random payloads on all ports, with random back-pressure on each."""
    rng = random.Random(seed)
    inputs = draw(rng)
    stalls = {port: rng.choice((0, 0.3, 0.7)) for port in (*inputs, *OUTPUTS)}
    run = rtl(inputs, seed=seed, stalls=stalls)
    check_local(inputs, run)
    check_packets_in(inputs, run)
    check_packets_out(inputs, run)
    check_reports(inputs, run)
    check_barriers(inputs, run)
    assert not run.payloads["receiver_absent"]


def test_receivers_that_do_not_run():
    """Absent receivers are reported to the trackers, and get nothing."""
    rng = random.Random(0)
    lines = [line(rng, slot) for slot in range(SLOTS)]
    commands = [
        {"holder": holder, "update": {"op": BarrierOp.ARRIVE, "request_id": holder}}
        for holder in range(CTAS)
    ]
    run = rtl({"line": lines, "remote_command": commands, "written": [], "smem_data": []}, 0b011)
    assert [out.mask for out in run.payloads["packet_out"]] == [mask & 0b011 for mask in MASKS]
    absent = [(report.slot, report.receiver) for report in run.payloads["receiver_absent"]]
    assert absent == [(slot, 2) for slot, mask in enumerate(MASKS) if mask & 0b100]
    (error,) = run.payloads["error"]
    assert (error.request_id, error.code, error.value) == (2, ErrorCode.DST_CTA, 2)


def test_input_from_the_cluster_does_not_wait_for_output_to_it():
    """With ``packet_out`` and ``message_out`` stuck, packets and messages still come in."""
    inputs = draw(random.Random(1))
    arrive = {"op": BarrierOp.ARRIVE, "address": 0, "count": 1}
    inputs["remote_command"] = [{"holder": OTHERS[0], "update": arrive}] * 4
    inputs["completion"] = []
    packets, messages = len(inputs["packet_in"]), len(inputs["message_in"])
    run = rtl(
        inputs,
        stall=0,
        stalls={"packet_out": 1, "message_out": 1},
        until=lambda r: (
            len(r.taken["packet_in"]) == packets
            and len(r.taken["message_in"]) == messages
            and sum(out.receipt.received for out in r.payloads["local_line"]) == packets
        ),
        limit=2000,
    )
    assert not run.payloads["packet_out"]
    assert not run.payloads["message_out"]


def test_local_paths_have_no_latency():
    """A line, fill or store that stays in the SM passes in its clock, one per clock."""
    rng = random.Random(2)
    local = {
        "line": [line(rng, 0) | {"remote": 0} for _ in range(30)],
        "fill": [fill(rng, 0, last=False) | {"remote": 0} for _ in range(30)],
        "store": [dsmem(rng, 0, last=False) | {"write_mode": {"remote": 0}} for _ in range(30)],
    }
    run = rtl({**local, "written": [], "smem_data": []}, stall=0)
    for name, output in (("line", "local_line"), ("fill", "local_fill"), ("store", "memory_store")):
        assert run.cycles[output] == run.taken[name] == list(range(30))
