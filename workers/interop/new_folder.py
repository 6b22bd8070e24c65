"""A folder that appears whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.interop.errors import InteropError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder to fill, which becomes `target` at the end; one that holds something is refused first."""
    refuse_existing(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise InteropError(f"{target} cannot be made ({error.strerror}); give a path that you may write") from error
    try:
        yield aside
        aside.chmod(0o755)  # mkdtemp's own folders are private
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_existing(target: Path) -> None:
    """Raise an `InteropError` when `target` holds something; an empty folder is fine."""
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise InteropError(f"{target} exists and is not empty; give another path, or move it away")
