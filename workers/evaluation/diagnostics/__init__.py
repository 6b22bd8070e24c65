"""What each loop of a trained model does and costs: LoopCoder-v2's gain and cost (arXiv 2606.18023), per loop.

diagnose(model, evaluation_set, sequences=32, batch_size=16)    metrics `loops/<r>/<name>`, and a table of all values
"""

from workers.evaluation.diagnostics.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
