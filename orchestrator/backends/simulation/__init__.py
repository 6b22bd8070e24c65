"""A cluster that does not exist: nodes, devices, failures and a clock, behind the seam of a backend.

The driver that runs on it is the real one. So a thousand nodes fit on a laptop, hours pass in seconds, and the same
seed gives the same study, failures included.
"""
