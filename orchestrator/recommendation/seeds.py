"""Which configurations deserve another seed because it can still change the recommendation."""

from orchestrator.recommendation.recommend import recommend
from orchestrator.records import StudyRecord


def wanted_by_the_answer(study: StudyRecord) -> list[str]:
    """Fingerprints of the configurations whose further seeds can still change the answer, the most urgent first.

    None when the answer is certain. Whoever was asked with fewer seeds goes first, whether or not they have ended;
    among them the best of each loop count, because while nothing is known of the noise everything could matter.
    """
    found = recommend(study, look_ahead=False)
    best = {one.fingerprint for one in found.best.values()}
    wanted = sorted(
        enumerate(found.unsettled), key=lambda each: (len(each[1].trials), each[1].fingerprint not in best, each[0])
    )
    return [one.fingerprint for _, one in wanted]
