"""Lemmas: what the products and sums of setup add up to, for integers of any size.

The proofs of ``tests.formal.items``, ``clip``, ``products``, ``generator`` and ``columns`` say
which numbers the blocks compute. These lemmas say that such numbers are the addresses of the
definition; ``docs/addresses.md`` composes them. ``d`` is a difference that is not negative: a < b
is written b = a + 1 + d.
"""

from tests.formal.proof import Lemma

PROOFS = [
    Lemma(
        "lemma: both parts of a position times the stride",
        "p l h s",
        ("(= p (+ l (* 65536 h)))",),
        "(= (* p s) (+ (* l s) (* 65536 (* h s))))",
    ),
    Lemma(
        "lemma: a step is n steps behind the first one inside",
        "coord e s first n k",
        ("(= k (+ first n))",),
        "(= (* (+ coord (* k e)) s) (+ (* (+ coord (* first e)) s) (* n (* e s))))",
    ),
    Lemma(
        "lemma: a step of an item lies in what the item spans",
        "n r below count d",
        ("(= count (+ n 1 d))", "(<= 0 d)", "(<= 0 n)", "(<= 0 r)", "(< r below)"),
        "(and (<= 0 (+ (* n below) r)) (< (+ (* n below) r) (* below count)))",
    ),
    Lemma(
        "lemma: the span of an item lies in its steps",
        "n r below count",
        (
            "(<= 0 (+ (* n below) r))",
            "(< (+ (* n below) r) (* below count))",
            "(<= 0 r)",
            "(< r below)",
        ),
        "(and (<= 0 n) (< n count))",
    ),
    Lemma(
        "lemma: no piece is in two steps of an item",
        "n r k q below d",
        ("(= k (+ n 1 d))", "(<= 0 d)", "(<= 0 r)", "(< r below)", "(<= 0 q)"),
        "(distinct (+ (* n below) r) (+ (* k below) q))",
    ),
    Lemma(
        "lemma: steps inside span at most what all steps span",
        "below inside count",
        ("(<= 0 below)", "(<= 0 inside)", "(<= inside count)"),
        "(and (<= 0 (* below inside)) (<= (* below inside) (* below count)))",
    ),
    Lemma(
        "lemma: a position inside is in the extent of its dimension",
        "p extent stride d",
        ("(<= 0 p)", "(= extent (+ p 1 d))", "(<= 0 d)", "(<= 0 stride)"),
        "(and (<= 0 (* p stride)) (<= (* p stride) (* (- extent 1) stride)))",
    ),
]
