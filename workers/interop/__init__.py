"""Checkpoints for other engines, and theirs for us: layouts, export, import, and the check that engines agree.

    layout.py, settings.py, names.py   which layout a model has, its config.json, its tensor names; no torch
    export.py, reading.py              our folder to theirs, theirs to ours
    remote_code/                       the Python files that an exported folder carries for transformers
    verify.py, engines/                run a folder in the engines that are installed, and compare

Nothing is imported here: a reader of `config.json` needs no torch.
"""
