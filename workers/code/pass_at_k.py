"""pass@k: the chance that one of k answers passes (Chen et al. 2021, arXiv 2107.03374, equation 1).

Of n answers to a problem c pass; 1 - C(n - c, k) / C(n, k) estimates pass@k without bias, unlike 1 - (1 - c/n)^k.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from workers.code.executor import Limits, run_program
from workers.code.problem import Problem


def pass_at_k(answers: int, passed: int, k: int) -> float:
    """The estimate for one problem; a `ValueError` unless 0 <= passed <= answers and 1 <= k <= answers."""
    if not (0 <= passed <= answers and 1 <= k <= answers):
        raise ValueError(f"passed is {passed} and k is {k}; both must be at most answers ({answers}), and k 1 or more")
    return 1 - math.comb(answers - passed, k) / math.comb(answers, k)


def count_passed(
    problems: Sequence[Problem],
    answers: Sequence[Sequence[str]],
    limits: Limits | None = None,
    workers: int | None = None,
) -> list[int]:
    """How many answers of every problem pass; so many programs run at a time, by default one per core.

    Raises an `IsolationError` where programs cannot be run apart from everything else.
    """
    programs = [
        (index, problem.program(answer))
        for index, (problem, own) in enumerate(zip(problems, answers, strict=True))
        for answer in own
    ]
    passed = [0] * len(problems)
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        ran = pool.map(lambda each: run_program(each[1], limits).passed, programs)
        for (index, _), right in zip(programs, ran, strict=True):
            passed[index] += right
    return passed


def mean_pass_at_k(answers: int, passed: Sequence[int], k: int) -> float:
    """Over problems with the same number of answers."""
    return fmean(pass_at_k(answers, each, k) for each in passed)
