"""What can be wrong with a trial's data, said in one line: what, the value, the remedy."""


class DataError(ValueError):
    """A corpus, shard folder or generated task that cannot be used."""
