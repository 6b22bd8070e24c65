"""Engines that others wrote, each in a process of its own, so that their environments and crashes are their own.

    python -m workers.interop.engines list                       what is installed in this environment, as JSON
    python -m workers.interop.engines run NAME FOLDER IN OUT     IN.npz: ids (B, S), prefill; OUT.npz: ids, log_probs

Only numpy and the engine itself are imported: an engine's environment needs neither torch nor the rest of this project.
"""
