"""Output paths of pictures: files that end in .png, .svg or .pdf, and folders."""

from __future__ import annotations

from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.plotting.style import FORMATS

PICTURE = ".png"
_OTHER_PICTURES = (".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".eps", ".ps")


def picture_file(out: Path, name: str, where: str) -> Path:
    """Return the file of one picture: ``out`` if it names one, else ``<name>.png`` in the folder ``out``.

    Raises ResultsError for another picture format; ``where`` is the option that named it.
    """
    if out.is_dir() or not _is_picture(out):
        return out / f"{name}{PICTURE}"
    if out.suffix.lower() not in FORMATS:
        allowed = f"a file that ends in {', '.join(FORMATS)}, or a folder"
        raise ResultsError(f"{out}: no format of pictures", where, allowed, f"{out.with_suffix(PICTURE)}")
    return out


def picture_folder(out: Path, pictures: int, where: str) -> Path:
    """Return the folder of several pictures. Raises ResultsError for a path that looks like one picture."""
    if not out.is_dir() and _is_picture(out):
        raise ResultsError(
            f"{out} is the name of one picture, and there are {pictures}",
            where,
            f"a folder; or one --kind with a file that ends in {', '.join(FORMATS)}",
            f"{out.with_suffix('')}",
        )
    return out


def _is_picture(out: Path) -> bool:
    return out.suffix.lower() in (*FORMATS, *_OTHER_PICTURES)
