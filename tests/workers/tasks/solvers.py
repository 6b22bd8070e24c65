"""Brute-force solvers: each reads one sequence as a person would, token by token, and knows nothing of the generator.

A solver takes the input tokens of one sequence, without fillers at its end, and the settings, and gives the labels by
slot and the depth that the answer really takes.
"""

from collections.abc import Callable
from itertools import permutations

from workers.config import DataConfig

Solved = tuple[dict[int, int], int]
"""Labels by slot, and the depth."""


def phop(tokens: list[int], data: DataConfig) -> Solved:
    count = data.alphabet + 1
    prefix = data.scored_depths("phop")[-1] if count in tokens else 0
    hops = tokens.count(count) or int(data.hops)
    stride = data.answer_delay + 1 if data.labels == "dense" else 1
    slots = [slot for slot in range(prefix, len(tokens), stride) if tokens[slot] < data.alphabet]
    symbols = [tokens[slot] for slot in slots]
    labels = {}
    for query in range(len(symbols)) if data.labels == "dense" else [len(symbols) - 1]:
        place = query
        for _ in range(hops):
            earlier = [index for index in range(place) if symbols[index] == symbols[place]]
            place = earlier[-1] + 1 if earlier else len(symbols)
            if place == len(symbols):
                break
        else:
            labels[slots[query] + data.answer_delay] = symbols[place]
    return labels, hops


def addition(tokens: list[int], data: DataConfig) -> Solved:
    text = "".join("0123456789+="[token] if token < 12 else " " for token in tokens)
    question, equals, _ = text.partition("=")
    assert equals
    numbers = question.split("+")
    assert all(len(number) == data.digits for number in numbers)
    answer = [*(int(digit) for digit in str(sum(map(int, numbers)))), 12]
    start = len(question) + data.answer_delay
    assert tokens[start + 1 : start + len(answer)] == answer[:-1]  # what greedy decoding would feed back
    return {start + index: token for index, token in enumerate(answer)}, len(numbers)


def igsm(tokens: list[int], data: DataConfig) -> Solved:
    words = ["ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456"[token] if token < 33 else "#:+-.? "[token - 33] for token in tokens]
    text = "".join(words)
    body, _, rest = text.rpartition(".")
    asked = rest[: rest.index("?")]
    meaning = dict(statement.split(":") for statement in body.split("."))
    assert len(meaning) == data.statements

    def depth(name: str) -> int:
        return (
            0
            if meaning[name].isdigit()
            else 1 + max(depth(term) for term in meaning[name].replace("-", "+").split("+"))
        )

    def value(name: str) -> int:
        if meaning[name].isdigit():
            return int(meaning[name])
        return int(eval("+".join(f"({_signed(term)})" for term in meaning[name].split("+"))))

    def _signed(terms: str) -> str:
        return "-".join(str(value(term)) for term in terms.split("-"))

    slot = text.index("?") + data.answer_delay
    return {slot: 26 + value(asked) % 7}, depth(asked)


def variables(tokens: list[int], data: DataConfig) -> Solved:
    equals, comma, query, _ = range(10 + data.assignments, 14 + data.assignments)
    held: dict[int, tuple[int, int]] = {}
    place = 0
    while tokens[place + 2] != query:
        name, sign, source, end = tokens[place : place + 4]
        assert (sign, end) == (equals, comma)
        assert name not in held
        value, depth = (source, 0) if source < 10 else held[source]
        held[name] = (value, depth + (source >= 10))
        place += 4
    assert len(held) == data.assignments
    value, depth = held[tokens[place]]
    return {place + 2 + data.answer_delay: value}, depth


def tracking(tokens: list[int], data: DataConfig) -> Solved:
    degree = int(data.group[1:])
    if data.group[0] == "z":
        elements: list[tuple[int, ...]] = [
            tuple((x + shift) % degree for x in range(degree)) for shift in range(degree)
        ]
    else:
        elements = [each for each in permutations(range(degree)) if data.group[0] == "s" or _even(each)]
    state = tuple(range(degree))
    labels = {}
    stride = data.answer_delay + 1
    given = [slot for slot in range(0, len(tokens), stride) if tokens[slot] < len(elements)]
    for slot in given:
        element = elements[tokens[slot]]
        state = tuple(element[x] for x in state)  # first what came before, then this element
        labels[slot + data.answer_delay] = elements.index(state)
    return labels, len(given)


def _even(permutation: tuple[int, ...]) -> bool:
    """By its cycles: one swap less than elements for each."""
    left, swaps = set(range(len(permutation))), 0
    while left:
        at = left.pop()
        while permutation[at] in left:
            at = permutation[at]
            left.remove(at)
            swaps += 1
    return swaps % 2 == 0


def mano(tokens: list[int], data: DataConfig) -> Solved:
    assert tokens[0] == 26
    end = tokens.index(27)
    rest = tokens[2:end]

    def read() -> int:
        token = rest.pop(0)
        if token < 23:
            return token
        first, second = read(), read()
        return {23: first + second, 24: first - second, 25: first * second}[token] % 23

    operators = sum(token >= 23 for token in rest)
    value = read()
    assert not rest
    assert tokens[1] == operators
    return {end + data.answer_delay: value}, operators


def depo(tokens: list[int], data: DataConfig) -> Solved:
    width, letters = data.name_tokens, 2 * data.nodes
    query = letters + 10
    end = tokens.index(query)
    names = [tuple(tokens[at : at + width]) for at in range(0, end, width)]
    successor = dict(zip(names[::2], names[1::2], strict=True))
    start = names[0]
    node, size = successor[start], 1
    while node != start:
        node, size = successor[node], size + 1
    assert size == len(successor) == len(set(successor.values()))
    labels: dict[int, int] = {}
    place = end
    while place < len(tokens) and tokens[place] == query:
        steps = 10 * (tokens[place + 1] - letters) + tokens[place + 2] - letters
        assert steps < size
        node = tuple(tokens[place + 3 : place + 3 + width])
        for _ in range(steps):
            node = successor[node]
        assert tokens[place + 3 + width] == query + 1
        answer = place + 3 + width + data.answer_delay
        labels |= {answer + index: token for index, token in enumerate(node)}
        assert tuple(tokens[answer + 1 : answer + 1 + width]) == node
        place = answer + 1 + width
    return labels, steps


SOLVERS: dict[str, Callable[[list[int], DataConfig], Solved]] = {
    "phop": phop,
    "addition": addition,
    "igsm": igsm,
    "variables": variables,
    "tracking": tracking,
    "mano": mano,
    "depo": depo,
}
