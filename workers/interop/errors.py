"""What can go wrong between our checkpoints and theirs."""


class InteropError(ValueError):
    """A folder that cannot be read, or a model that a layout cannot express; one line that names what and why."""
