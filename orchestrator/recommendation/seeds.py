"""Which configurations deserve another seed because it can still change the recommendation."""

from orchestrator.recommendation.recommend import recommend
from orchestrator.records import StudyRecord

_LEVEL = 0.98
"""Above the 95 % at which an answer is called sure: who looks after every seed and stops at the first good look errs
more often than who looks once."""


def wanted_by_the_answer(study: StudyRecord) -> list[str]:
    """Fingerprints of the configurations whose further seeds can still change the answer, the most urgent first.

    None when the answer is certain. First, of loop counts of which everything was stopped early, the most promising
    configuration: a further seed runs to the end, and without any the answer would be about the others only. Then
    whoever was asked with fewer seeds, whether or not they have ended; among them the best of each loop count, because
    while nothing is known of the noise everything could matter.
    """
    found = recommend(study, level=_LEVEL, look_ahead=False)
    cut_short = [one.fingerprint for one in found.unknown if all(trial.state.finished for trial in one.trials)]
    best = {one.fingerprint for one in found.best.values()}
    wanted = sorted(
        enumerate(found.unsettled), key=lambda each: (len(each[1].trials), each[1].fingerprint not in best, each[0])
    )
    return [*cut_short, *(one.fingerprint for _, one in wanted)]
