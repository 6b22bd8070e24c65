"""Tracked runs: a narrow seam to MLflow with an in-memory twin, and the reader that the dashboard and `plt` use."""
