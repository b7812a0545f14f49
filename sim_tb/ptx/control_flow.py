"""Order of basic blocks in which diverged threads of a warp meet again.

The scheduler runs the threads whose block comes first. In an order in which a block comes behind
all blocks that can lead to it, the edges back to the beginnings of loops left out, threads that
wait at the immediate post-dominator of a branch are joined there by the others, however the
compiler has laid out the code.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from sim_tb.ptx.syntax import Call, Function, Instruction, Name

Edges = dict[int, set[int]]


def _targets(instruction: Instruction) -> list[int]:
    """Return the instructions to which a ``bra`` or ``brx`` can jump; none if it is broken."""
    operand = next(iter(instruction.operands[instruction.parts[0] == "brx" :]), None)
    if not isinstance(operand, Name):
        return []
    scope = instruction.scope
    names: Iterable[str] = [operand.text]
    if instruction.parts[0] == "brx":
        names = scope.branch_targets(operand.text) or ()
    found = (scope.label(name) for name in names)
    return [target for target in found if target is not None]


def successors(
    instructions: Sequence[Instruction], functions: Iterable[Function]
) -> list[set[int]]:
    """Return the instructions that can follow each instruction."""
    firsts = sorted(each.first for each in functions if each.first is not None)
    entries = {each.name: each.first for each in functions if each.first is not None}
    returns: dict[int, set[int]] = {}
    for number, each in enumerate(instructions):
        operand = next(iter(each.operands), None)
        if isinstance(operand, Call) and operand.function in entries:
            returns.setdefault(entries[operand.function], set()).add(number + 1)
    made = []
    for number, each in enumerate(instructions):
        name, following = each.parts[0], set()
        if name not in ("bra", "brx", "ret", "exit") or each.guard is not None:
            following.add(number + 1)
        if name in ("bra", "brx"):
            following.update(_targets(each))
        elif name == "call" and each.parts[-1] != "results":
            operand = next(iter(each.operands), None)
            if isinstance(operand, Call) and operand.function in entries:
                following = {entries[operand.function]}
        elif name == "ret":
            place = bisect_right(firsts, number) - 1
            following |= returns.get(firsts[place], set()) if place >= 0 else set()
        made.append({each for each in following if each < len(instructions)})
    return made


def block_order(
    instructions: Sequence[Instruction], functions: Iterable[Function]
) -> tuple[list[int], list[int]]:
    """Return the rank of the basic block of each instruction, and the instruction behind it.

    Both lists have a last entry for the end of the kernel.
    """
    count = len(instructions)
    following = successors(instructions, list(functions))
    starts = sorted(
        {0}
        | {target for number, each in enumerate(following) for target in each - {number + 1}}
        | {number + 1 for number in range(count - 1) if following[number] != {number + 1}}
    )
    ends = [*starts[1:], count]
    block_of = {start: number for number, start in enumerate(starts)}
    edges: Edges = {
        number: {block_of[target] for target in following[end - 1]}
        for number, end in enumerate(ends[: len(starts)])
    }
    rank = {block: place for place, block in enumerate(_ordered(set(edges), edges))}
    ranks, lasts = [], []
    for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
        ranks += [rank[number]] * (end - start)
        lasts += [end] * (end - start)
    return [*ranks, len(starts)], [*lasts, count + 1]


def _ordered(nodes: set[int], edges: Edges) -> list[int]:
    """Return blocks in an order of their edges, loops from their first block on."""
    result = []
    for component in reversed(_components(nodes, edges)):
        if len(component) == 1:
            result += component
            continue
        inside = set(component)
        outside = nodes - inside
        entered = {each for node in outside for each in edges[node] & inside}
        first = min(entered or inside)
        loop = {node: edges[node] & inside - {first} for node in inside}
        result += _ordered(inside, loop)
    return result


def _components(nodes: set[int], edges: Edges) -> list[list[int]]:
    """Return the strongly connected components, each behind those that it leads to (Tarjan)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result = []
    for root in sorted(nodes):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(sorted(edges[root] & nodes)))]
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    place = stack.index(node)
                    result.append(stack[place:])
                    on_stack.difference_update(stack[place:])
                    del stack[place:]
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                on_stack.add(child)
                work.append((child, iter(sorted(edges[child] & nodes))))
            elif child in on_stack:
                low[node] = min(low[node], index[child])
    return result
