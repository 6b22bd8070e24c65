"""Where attempts run: in this process (`local`) or in Ray actors (`ray`)."""
