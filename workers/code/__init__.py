"""Code that a model writes: HumanEval and MBPP, scored by likelihood and by running what was written, apart from us."""
