"""In-order port: shares a port, whose answers come in order, between several users."""

from amaranth.hdl import Module, ShapeLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue


class InOrderPort(wiring.Component):
    """Passes the requests of users to a port, and returns each answer to its user.

    The port answers in the order of the requests, at the earliest one clock after the request. Each
    user gets its answers in the order of its requests.

    Latency: none from ``i`` to ``o`` and from ``o_answer`` to ``answer``, but an answer
    passes at the earliest two clocks after its request. Throughput: one request a clock for all
    users together; those that request take turns. Back-pressure: requests wait for the port, and
    while ``outstanding`` requests are unanswered. An answer that its user does not take blocks the
    answers behind it, also those of other users, so a user must have room for the answers to its
    requests. Errors: none.

    Parameters
    ----------
    shape, answer_shape : ShapeLike
        Payloads of requests and of answers.
    users : int
        Number of users.
    outstanding : int
        Largest number of unanswered requests of all users.

    Members
    -------
    i : In(stream.Signature(shape)).array(users)
        Requests of each user.
    answer : Out(stream.Signature(answer_shape)).array(users)
        Answers for each user.
    o : Out(stream.Signature(shape))
        Requests at the port.
    o_answer : In(stream.Signature(answer_shape))
        Answers of the port, in order.
    """

    def __init__(
        self, shape: ShapeLike, answer_shape: ShapeLike, users: int, outstanding: int
    ) -> None:
        self.users = users
        self.outstanding = outstanding
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(users),
                "answer": Out(stream.Signature(answer_shape)).array(users),
                "o": Out(stream.Signature(shape)),
                "o_answer": In(stream.Signature(answer_shape)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.requests = requests = Arbiter(self.o.p.shape(), self.users)
        m.submodules.owners = owners = Queue(range(self.users), self.outstanding)
        for user, port in enumerate(self.i):
            connect(m, flipped(port), requests.i[user])
            with m.If(requests.i[user].ready):
                m.d.comb += owners.i.payload.eq(user)
        m.d.comb += [
            self.o.payload.eq(requests.o.payload),
            self.o.valid.eq(requests.o.valid & owners.i.ready),
            requests.o.ready.eq(self.o.ready & owners.i.ready),
            owners.i.valid.eq(requests.o.valid & self.o.ready),
        ]
        for user, port in enumerate(self.answer):
            is_owner = owners.o.valid & (owners.o.payload == user)
            m.d.comb += [
                port.payload.eq(self.o_answer.payload),
                port.valid.eq(self.o_answer.valid & is_owner),
            ]
            with m.If(is_owner):
                m.d.comb += self.o_answer.ready.eq(port.ready)
        m.d.comb += owners.o.ready.eq(self.o_answer.valid & self.o_answer.ready)
        return m
