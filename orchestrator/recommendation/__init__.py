"""Which loop count, window and gate to take, why, and how sure that is.

recommend(study)               a pure function of the study's record
text(found), markdown(found)   the answer for people
"""

from orchestrator.recommendation.answer import Bounds, Costs, Recommendation, Step, Verdict
from orchestrator.recommendation.recommend import recommend
from orchestrator.recommendation.words import markdown, text

__all__ = ["Bounds", "Costs", "Recommendation", "Step", "Verdict", "markdown", "recommend", "text"]
