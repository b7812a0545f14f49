"""The golden model against silicon vectors."""

from collections.abc import Iterable, Iterator

from golden.errors import Refusal, TensorMapError
from golden.load import load
from golden.vectors import Case, Outcome, is_tiled_load


def outcomes(cases: Iterable[Case]) -> Iterator[Outcome]:
    """Run each transfer on the golden model, in order."""
    for case in cases:
        if not is_tiled_load(case):
            multicast = "multicast " if case.is_multicast else ""
            yield Outcome(note=f"the golden model has no {multicast}{case.mode} {case.op} yet")
            continue
        smem = case.smem()
        try:
            count = load(case.descriptor, case.gmem, smem, case.smem_address, case.coords)
        except Refusal as refusal:
            yield Outcome(refused=refusal.cause, memory=smem)
        else:
            yield Outcome(bytes=count, memory=smem)


def check_encoding(case: Case) -> str | None:
    """Build the case's tensor map; return None, or how status or bytes differ from the driver's."""
    try:
        tensor_map = case.tensor_map()
    except TensorMapError as error:
        return None if case.encode_status else f"{case}: the driver accepts it, got {error}"
    if case.encode_status:
        return f"{case}: the driver rejects it, got accepted"
    data = tensor_map.encode()
    for n in range(0, len(data), 4):
        got, expected = data[n : n + 4][::-1].hex(), case.descriptor[n : n + 4][::-1].hex()
        if got != expected:
            return f"{case}: word w{n // 4}: expected 0x{expected}, got 0x{got}"
    if type(tensor_map).decode(data) != tensor_map:
        return f"{case}: decoding its bytes gives another map"
    return None
