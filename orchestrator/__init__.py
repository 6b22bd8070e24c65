"""The driver: reads a study file, asks for trials, runs them on a backend, tells and tracks their outcomes."""
