"""The golden model against silicon vectors."""

from collections.abc import Iterable, Iterator

import numpy as np

from golden.errors import TmaError
from golden.model import execute
from golden.vectors import CLUSTER, Case, Outcome


def outcome(case: Case) -> Outcome:
    """Run a transfer on the golden model."""
    if case.op == "load":
        smem = [case.smem() for _ in range(CLUSTER if case.is_multicast else 1)]
        gmem = case.gmem
        memory = np.concatenate(smem) if case.is_multicast else smem[0]
        if case.is_multicast:
            smem = list(memory.reshape(CLUSTER, -1))
    else:
        gmem = writable = case.gmem_writable()
        smem, memory = [case.smem()], writable.bytes
    try:
        completions = execute(case.request(), gmem, smem, cta=case.issuer)
    except TmaError as error:
        return Outcome(refused=error.code, memory=memory)
    receivers = [cta for cta in range(len(smem)) if case.cta_mask >> cta & 1] or [case.issuer]
    if case.op == "load" and [c.cta for c in completions] != receivers:
        return Outcome(note=f"complete_tx at {completions}, expected at CTAs {receivers}")
    counts = {completion.bytes for completion in completions}
    if len(counts) > 1:
        return Outcome(note=f"receivers count differently: {completions}")
    return Outcome(bytes=counts.pop() if counts else 0, memory=memory)


def outcomes(cases: Iterable[Case]) -> Iterator[Outcome]:
    """Run each transfer on the golden model, in order."""
    return (outcome(case) for case in cases)


def check_encoding(case: Case) -> str | None:
    """Build the case's tensor map; return None, or how status or bytes differ from the driver's."""
    try:
        tensor_map = case.tensor_map()
    except TmaError as error:
        return None if case.encode_status else f"{case}: the driver accepts it, got {error}"
    if case.encode_status:
        return f"{case}: the driver rejects it, got accepted"
    got = tensor_map.encode()
    for n in range(0, len(got), 4):
        a, b = got[n : n + 4][::-1].hex(), case.descriptor[n : n + 4][::-1].hex()
        if a != b:
            return f"{case}: word w{n // 4}: expected 0x{b}, got 0x{a}"
    if type(tensor_map).decode(got) != tensor_map:
        return f"{case}: decoding its bytes gives another map"
    return None
