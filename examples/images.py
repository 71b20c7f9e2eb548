"""A small data set of real photographs, made from the two that ship inside scikit-learn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_sample_images

FLIP = Image.Transpose.FLIP_LEFT_RIGHT


def make_photos(folder: str | Path, count: int = 320, seed: int = 0) -> list[Path]:
    """Write random crops of a temple and of a flower as JPEG files of 640 x 427 pixels, quality 90.

    Args:
        folder: where to, made if need be; files of an earlier call are written again.
        count: how many files, half of them of each photograph.
        seed: for the choice of crops; the same seed gives the same files.

    Returns:
        The files; the first word of a file's name says what it shows.
    """
    folder, rng = Path(folder), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    temple, flower = (Image.fromarray(pixels) for pixels in load_sample_images().images)
    files = []
    for number in range(count):
        name, photo = (("temple", temple), ("flower", flower))[number % 2]
        files.append(folder / f"{name}-{number:03}.jpg")
        random_crop(photo, rng).save(files[-1], quality=90)
    return files


def random_crop(photo: Image.Image, rng: random.Random) -> Image.Image:
    """A random part of the photograph, as large as the whole, flipped half of the time."""
    part = rng.uniform(0.6, 1.0)
    width, height = part * photo.width, part * photo.height
    left, top = rng.uniform(0, photo.width - width), rng.uniform(0, photo.height - height)
    crop = photo.resize(photo.size, box=(left, top, left + width, top + height))
    return crop.transpose(FLIP) if rng.random() < 0.5 else crop


def contact_sheet(files: Sequence[Path], size: tuple[int, int] = (144, 96), gap: int = 4) -> Image.Image:
    """The pictures side by side, small."""
    width, height = size
    sheet = Image.new("RGB", (len(files) * (width + gap) - gap, height), "white")
    for column, file in enumerate(files):
        with Image.open(file) as photo:
            sheet.paste(photo.resize(size), (column * (width + gap), 0))
    return sheet
