"""How a process is called in locks and requests, for people and for other processes."""

import os
import socket


def process_name() -> str:
    """`host:pid` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"
