"""Makes a case that differs simpler, as long as it differs."""

from collections.abc import Callable, Iterator, Sequence

from tests.fuzz.draw import Drawn, Row, drawn

Change = tuple[str, int, int]
"""Field of a row, index in it, and its new value; index -1: the field has one value."""

Differs = Callable[[Sequence[Drawn]], list[bool]]


def changes(row: Row) -> Iterator[Change]:
    """Yield all changes of one value that make a row simpler: to 0, or by a bit."""
    for name in "coords", "im2col_offsets", "descriptor":
        for index, value in enumerate(row[name].tolist()):
            if value:
                yield name, index, 0
    for index, word in enumerate(row["descriptor"].tolist()):
        if word.bit_count() > 1:
            for bit in range(32):
                if word >> bit & 1:
                    yield "descriptor", index, word & ~(1 << bit)
    for name, simple in (("smem_address", 0), ("global_address", 0), ("red_op", 0)):
        if row[name] != simple:
            yield name, -1, simple
    if row["mode"] == "bulk" and row["bytes"] > 16:
        yield "bytes", -1, 16


def changed(row: Row, made: Sequence[Change]) -> Row:
    """Return a row with changes, of which those of single bits of a word add up."""
    row = row.copy()
    for name, index, value in made:
        if index < 0:
            row[name] = value
        elif name == "descriptor":
            row[name][index] &= value
        else:
            row[name][index] = value
    return row


def shrunk(case: Drawn, differs: Differs) -> Drawn:
    """Return the simplest case found that still differs."""
    while True:
        row = case.case.fields
        smaller = try_all([[change] for change in changes(row)], row, differs)
        kept = [made for (made,), _ in smaller]
        if not kept:
            return case
        counts = [1 << n for n in range(len(kept).bit_length()) if 1 << n < len(kept)]
        together = try_all([kept[:count] for count in (*counts, len(kept))], row, differs)
        case = (together or smaller)[-1][1]


def try_all(
    tried: Sequence[list[Change]], row: Row, differs: Differs
) -> list[tuple[list[Change], Drawn]]:
    """Return those of the lists of changes behind which the case still differs."""
    cases = [(made, drawn(changed(row, made), 0)) for made in tried]
    defined = [(made, case) for made, case in cases if case is not None]
    if not defined:
        return []
    answers = differs([case for _, case in defined])
    return [item for item, answer in zip(defined, answers, strict=True) if answer]
