"""Wheels and other zip files, good and bad, written by hand."""

from __future__ import annotations

import stat
import zipfile


def zip_file(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def zip_with_link(path, name, target):
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, target)
        archive.writestr("data.csv", b"a\n1\n")
    return path


def wheel(folder, member, data):
    """A wheel ``drawn-1.0`` that pip accepts."""
    info = "drawn-1.0.dist-info"
    return zip_file(
        folder / "drawn-1.0-py3-none-any.whl",
        {
            member: data,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: drawn\nVersion: 1.0\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
            b"Tag: py3-none-any\n",
            f"{info}/RECORD": b"",
        },
    )
