"""Page walker of simulations: every walk is answered once, out of order, with a page of its own."""

import random

from amaranth.hdl import Module, Signal

from hw.page_loop import ABSENT, READ_ONLY, PageWalker, physical_page, virtual_page
from hw.params import TmaParams
from tests.hw.simulate import evaluate, run_streams

PARAMS = TmaParams(tlb_entries=16, address_bits=40)


def test_every_walk_is_answered() -> None:
    rng = random.Random(1)
    pages = [rng.getrandbits(PARAMS.page_number_bits) for _ in range(14)]
    pages += [ABSENT >> PARAMS.tlb_page_bits, READ_ONLY >> PARAMS.tlb_page_bits]
    walks = [{"id": number, "page": page} for number, page in enumerate(pages)]
    outputs = ["response", "invalidate"]
    run = run_streams(PageWalker(PARAMS), {"request": walks}, outputs, quiet=1000, limit=2000,
                      until=lambda run: len(run.payloads["invalidate"]) > 20)  # fmt: skip
    ids = [answer.id for answer in run.payloads["response"]]
    assert sorted(ids) == [*range(16)]
    assert ids != sorted(ids), "the walks came in order"
    assert len({answer.translation.page for answer in run.payloads["response"]}) == 16
    for answer in run.payloads["response"]:
        assert answer.translation.present == (answer.id != 14)
        assert answer.translation.writable == (answer.id != 15)
    assert {each.all for each in run.payloads["invalidate"]} == {0, 1}


def test_pages_are_permuted() -> None:
    rng = random.Random(2)
    samples = [(rng.getrandbits(28),) for _ in range(100)]

    def there(_m: Module, page: Signal):
        return physical_page(page)

    def there_and_back(_m: Module, page: Signal):
        return virtual_page(physical_page(page))

    pages = [page for (page,) in samples]
    assert evaluate(there_and_back, [28], samples) == pages
    assert all(a != b for a, b in zip(evaluate(there, [28], samples), pages, strict=True))
