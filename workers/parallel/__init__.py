"""Several workers that train one trial together: how they meet, agree, and share a model.

The batch of a step, the mean loss and the clipped gradient are those of one worker, whatever their number, up to the
rounding of sums in another order. Rank 0 alone evaluates, reports and writes; what it writes says nothing of how many
there were, so a trial goes on with another number of workers.
"""

from workers.parallel.meeting import joined
from workers.parallel.ranks import ALONE, Ranks
from workers.parallel.sharded import Sharded
from workers.parallel.spread import Replicated, Spread, Whole

__all__ = ["ALONE", "Ranks", "Replicated", "Sharded", "Spread", "Whole", "joined"]
