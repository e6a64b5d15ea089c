"""CelebA's files in their official formats, small and drawn."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from PIL import Image

ATTRIBUTES = ("Bald", "Eyeglasses", "Male", "Smiling", "Young")


def jpeg(colour, size=(178, 218)):
    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def names(count):
    return [f"{k + 1:06d}.jpg" for k in range(count)]


def colour(k):
    return (40 + 5 * (k % 40), 90, 200 - 4 * (k % 40))


class Drawn:
    """A folder with pictures of 12 people, three to nine each, and both lists."""

    def __init__(self, folder, *, ending="\r\n", seed=0):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ending = folder, ending
        rng = np.random.default_rng(seed)
        sizes = [3, 4, 5, 5, 6, 7, 8, 9, 5, 6, 7, 3]
        self.person = rng.permutation(np.repeat(100 + np.arange(12), sizes))
        self.names = names(len(self.person))
        self.flags = rng.choice([-1, 1], (len(self.person), len(ATTRIBUTES)))
        self.pictures = {name: jpeg(colour(k)) for k, name in enumerate(self.names)}
        self.write_lists()

    def write_lists(self):
        rows = [
            name + "".join(f" {flag:2d}" for flag in flags)
            for name, flags in zip(self.names, self.flags, strict=True)
        ]
        self.write(
            "list_attr_celeba.txt", [str(len(rows)), " ".join(ATTRIBUTES), *rows]
        )
        self.write(
            "identity_CelebA.txt",
            [f"{n} {p}" for n, p in zip(self.names, self.person, strict=True)],
        )

    def write(self, name, lines):
        text = "".join(line + self.ending for line in lines)
        (self.folder / name).write_bytes(text.encode())

    def zipped(self, **others):
        path = self.folder / "img_align_celeba.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("img_align_celeba/", b"")
            for name, content in self.pictures.items():
                archive.writestr(f"img_align_celeba/{name}", content)
            for name, content in others.items():
                archive.writestr(name, content)
        return self.folder

    def unzipped(self, *, beside=False):
        folder = self.folder if beside else self.folder / "img_align_celeba"
        folder.mkdir(exist_ok=True)
        for name, content in self.pictures.items():
            (folder / name).write_bytes(content)
        return self.folder
