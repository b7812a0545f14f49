"""Random walks for the blocks of the generator, and the runs that they consist of."""

import random
from dataclasses import dataclass
from itertools import product

from hw.params import TmaParams


@dataclass(frozen=True)
class Rows:
    """Short rows of a walk that may share a line: the steps of ``loop``."""

    loop: int
    row: int
    row_step: int
    smem_step: int
    fill: int
    """Pieces between rows that are fill, by their distance from a row's first piece."""
    store: bool

    def fit(self, lanes: int, lane: int) -> int:
        """Return the number of further rows in the line of a row that begins at ``lane``."""
        return _rows_behind(lanes - lane - self.row, self.row_step)

    def fit_in_smem(self, lanes: int, lane: int) -> int:
        """Return the number of further rows that fit in shared memory after one at ``lane``."""
        if self.store:  # two rows, each of them in one beat
            begins = lane, (lane + self.smem_step) % lanes
            return int(self.smem_step > 0 and max(begins) + self.row <= lanes)
        return _rows_behind(lanes - (lane if self.fill else 0) - self.row, self.smem_step)


def _rows_behind(pieces: int, step: int) -> int:
    return max(pieces, 0) // step if step else 0


def rows_of(walk: dict, params: TmaParams) -> Rows | None:
    """The short rows of a walk, or None: steps of its innermost loop that repeats, if short.

    Those of a store must not overlap.
    """
    row = walk["row_pieces"]
    store = walk.get("store", 0)
    for number, loop in enumerate(walk["loops"]):
        if loop["last"]:
            steps = loop["global_step"], loop["smem_step"]
            if max(steps) > 7 or (store and steps[0] < row):
                return None
            between = [i for i in range(params.lanes) if steps[1] and row and i % steps[1] >= row]
            is_fill = any(walk["row_mask"] >> i & 1 for i in between)
            fill = sum(1 << i for i in between) if is_fill else 0
            return Rows(number, row, *steps, fill, store)
    return None


def random_walk(rng: random.Random, params: TmaParams) -> dict:
    """A walk of a few runs; often of short rows that may share a line."""
    row = rng.randint(1, 3)
    smem = 1 << rng.choice((12, params.smem_piece_bits - 1))
    loops = []
    for _ in range(4):
        far = rng.choice((20, 39)) if rng.random() < 0.4 else 0
        loops.append(
            {
                "last": rng.choice((0, 0, 1, 2, 5)),
                "global_step": rng.randrange(1 << far) if far else rng.randint(0, 7),
                "smem_step": rng.randrange(20) if far else rng.randint(row, 7),
            }
        )
    is_short = rng.random() < 0.7
    all_pieces = (1 << params.row_mask_bits) - 1
    return {
        "has_data": rng.random() < 0.8,
        "first": rng.randrange(2),
        "last": rng.randrange(2),
        "start": rng.randrange(1 << rng.choice((20, params.piece_address_bits - 1))),
        "run": row if is_short else rng.randint(1, 30),
        "row_pieces": row if is_short or rng.random() < 0.3 else 0,
        "tail_bytes": rng.randrange(16),
        "smem_begin": rng.randrange(smem),
        "smem_end": rng.randrange(smem),
        "smem_start": rng.randrange(smem),
        "smem_extent": rng.randint(1, 30),
        "row_mask": rng.choice((all_pieces, rng.randint(0, all_pieces))),
        "loops": loops,
    }


def runs_of(walk: dict) -> list[tuple[int, int, int]]:
    """Global piece, shared-memory piece and steps left of the innermost repeating loop, by run."""
    runs = []
    inner = next((number for number, loop in enumerate(walk["loops"]) if loop["last"]), 0)
    counts = [range(loop["last"] + 1) for loop in walk["loops"]]
    for reversed_steps in product(*reversed(counts)):
        steps = reversed_steps[::-1]
        start = walk["start"]
        smem = walk["smem_start"]
        for loop, number in zip(walk["loops"], steps, strict=True):
            start += number * loop["global_step"]
            smem += number * loop["smem_step"]
        runs.append((start, smem, walk["loops"][inner]["last"] - steps[inner]))
    return runs
