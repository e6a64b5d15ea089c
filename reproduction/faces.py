"""Drawn faces in the shape of CelebA, for examples, tests and measurements.

Every face is a few ellipses and a mouth, corners up or down. A client is a person:
skin, hair and shape of the face are theirs, and so is how often they smile. Most
clients have one gender only, as in CelebA. Men are harder to read: a beard hides their
mouths, more or less, and the corners lie lower, so the same mouth means another thing
on a man; hair tells who is one, but not always. By default that is as little as on
CelebA's pictures, where FedAvg's loss differs by 0.01 to 0.05 between the genders.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pffl.data.checks import check_choice, check_shares, check_whole
from pffl.data.federation import Federation
from pffl.data.partition import silo_names
from pffl.data.silo import Rows
from pffl.datasets._pictures import picture_schema
from pffl.errors import Problems, UsageError
from pffl.typing import FloatArray, IntArray

BLOCK = 1 << 17  # pixels drawn at once: what stays in cache
SMALLEST = 12

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class Look:
    """How hard faces are to read, and whose are harder; see `faces`."""

    men: float
    beard: float
    reserve: float
    label_noise: float
    noise: float


LOOKS = {
    "like": Look(0.42, 0.2, 0.1, 0.1, 0.1),
    "harder": Look(0.42, 0.25, 0.1, 0.15, 0.15),
    "apart": Look(0.3, 0.5, 1.0, 0.02, 0.05),
}


def faces(
    clients: int = 472,
    *,
    images: int = 20,
    size: int = 84,
    look: Literal["like", "harder", "apart"] = "like",
    men: float | None = None,
    mixed: float = 0.05,
    beard: float | None = None,
    reserve: float | None = None,
    label_noise: float | None = None,
    noise: float | None = None,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Draw a federation of faces; its name, and every result on it, says "synthetic".

    Rows are pictures of size × size × 3 bytes, colours last, as `celeba` gives them;
    label Smiling, group Male.

    Parameters
    ----------
    clients
        Number of people; each is a silo.
    images
        Mean number of pictures of a person; from half to one and a half times as many.
    size
        Height and width in pixels.
    look
        What the five parameters below are where they are not given: "like" CelebA, in
        losses and in the gap between genders (docs/celeba.md has both as measured);
        "harder", with more wrong labels and more grain; or "apart", where men are few
        and far harder to read, so that bounds have much to gain.
    men
        Share of men among the clients.
    mixed
        Share of clients whose pictures are of both genders.
    beard
        How much of a man's mouth a beard hides at most: 0 nothing, 1 all of it.
    reserve
        How much less a man's mouth bends up, smiling or not, where 1 is a smile.
    label_noise
        Share of labels that are wrong, in both groups alike.
    noise
        Standard deviation of each pixel, where white is 1.
    test_fraction, validation_fraction
        Share of each client's pictures kept for testing and validation.
    seed
        The same seed, the same pictures.
    """
    with Problems("faces", UsageError) as problems:
        check_whole(problems, clients=clients, images=images)
        check_whole(problems, least=SMALLEST, size=size)
        check_choice(problems, "look", look, tuple(LOOKS))
        own = (men, beard, reserve, label_noise, noise)
        names = (f.name for f in fields(Look))
        given = {n: x for n, x in zip(names, own, strict=True) if x is not None}
        check_shares(problems, mixed=mixed, **given)
    chosen = replace(LOOKS[look], **given)
    generator = np.random.default_rng(seed)
    people = draw_people(generator, clients, chosen.men, mixed)
    sizes = generator.integers(-(-images // 2), images + images // 2 + 1, clients)
    silo = np.repeat(np.arange(clients), sizes)
    male = generator.random(len(silo)) < people.male[silo]
    smiling = generator.random(len(silo)) < people.smiling[silo]
    style = Style(size, chosen.beard, chosen.reserve, chosen.noise)
    X = np.empty((len(silo), size * size * 3), dtype=np.uint8)
    step = max(1, BLOCK // (size * size))
    for start in range(0, len(silo), step):
        part = slice(start, start + step)
        X[part] = _draw_block(
            generator, people, silo[part], male[part], smiling[part], style
        )
    wrong = generator.random(len(silo)) < chosen.label_noise
    return Federation.from_rows(
        picture_schema(size, "Smiling", "Male"),
        Rows.of(X, smiling ^ wrong, male),
        silo,
        silo_names(clients, "person"),
        test_fraction=test_fraction,
        validation_fraction=validation_fraction,
        name=f"synthetic faces, {look} ({clients:,} people, {len(X):,} drawings)",
        synthetic=True,
        seed=seed,
        notes=(f"synthetic: drawn with seed {seed}, no real person is shown",),
    )


@dataclass(frozen=True, eq=False)
class People:
    """What is the same in all pictures of a person, one entry or row for each."""

    male: FloatArray  # share of pictures that show a man
    smiling: FloatArray  # share of pictures that smile
    skin: FloatArray
    hair: FloatArray
    shape: FloatArray  # half-width and half-height of the face
    long_hair: FloatArray  # as a draw from [0, 1]: below a share, it is long
    beard: FloatArray  # of a man's, as a share of the thickest


@dataclass(frozen=True)
class Style:
    """How all faces are drawn; see `faces`."""

    size: int
    beard: float
    reserve: float
    noise: float


def draw_people(
    generator: np.random.Generator, clients: int, men: float, mixed: float
) -> People:
    """Draw the clients."""
    male = (generator.random(clients) < men).astype(np.float64)
    both = generator.random(clients) < mixed
    male[both] = generator.uniform(0.2, 0.8, int(both.sum()))
    tone = generator.uniform(0.35, 0.95, (clients, 1))
    skin = tone * np.array([1.0, 0.8, 0.65]) + generator.normal(0, 0.02, (clients, 3))
    hair = generator.uniform(0.05, 0.6, (clients, 1)) * np.array([1.0, 0.75, 0.5])
    shape = generator.uniform((0.26, 0.34), (0.34, 0.42), (clients, 2))
    smiling, (long_hair, beard) = (
        generator.beta(2, 2, clients),
        generator.random((2, clients)),
    )
    return People(male, smiling, skin, hair, shape, long_hair, beard)


def _draw_block(
    generator: np.random.Generator,
    people: People,
    silo: IntArray,
    male: NDArray[np.bool_],
    smiling: NDArray[np.bool_],
    style: Style,
) -> NDArray[np.uint8]:
    """Paint from back to front: background, hair, face, eyes, beard, mouth, grain.

    Colours come first here, shape (3, n, size, size): planes are painted one by one;
    in the bytes that are returned, shape (n, size · size · 3), they come last.
    """
    n, size, soft = len(silo), style.size, 1.5 / style.size
    line = ((np.arange(size) + 0.5) / size).astype(np.float32)
    shift = generator.normal(0, 0.02, (2, n, 1, 1)).astype(np.float32)
    x = line[None, None, :] - 0.5 - shift[0]  # (n, 1, size)
    y = line[None, :, None] - 0.52 - shift[1]  # (n, size, 1)
    wide, high = people.shape[silo].T.astype(np.float32)[..., None, None]
    man = male[:, None, None]
    hair, skin = people.hair[silo], people.skin[silo]

    picture = np.empty((3, n, size, size), dtype=np.float32)
    picture[:] = generator.uniform(0.3, 0.8, (3, n, 1, 1))
    is_long = people.long_hair[silo, None, None] < np.where(man, 0.1, 0.7)
    long = np.where(is_long, 0.16, 0.0).astype(np.float32)
    _paint(picture, _ellipse(x, y - long, wide * 1.25, high * 1.15 + long, soft), hair)
    _paint(picture, _ellipse(x, y - 0.03, wide, high, soft), skin)
    eyes = _ellipse(np.abs(x) - 0.12, y + 0.1, 0.035, 0.022, soft)
    _paint(picture, eyes, np.full((n, 3), 0.1))
    below = np.clip((y - 0.02) / soft, 0, 1)  # of the face, what a beard may cover
    hidden = man * (style.beard * people.beard[silo])[:, None, None]
    _paint(picture, hidden * below * _ellipse(x, y - 0.03, wide, high, soft), hair)

    # A mouth is the parabola y = base − bend·x²: corners up (smaller y) for a smile.
    bend = np.where(smiling, 1.0, -1.0) + 0.5 * generator.standard_normal(n)
    bend -= style.reserve * male
    bend = (4.0 * bend)[:, None, None].astype(np.float32)
    away = np.abs(y - 0.19 - bend * (0.008 - x**2)) - 0.028
    mouth = np.clip(0.5 - away / soft, 0, 1) * (np.abs(x) < 0.15)
    mouth *= 1.0 - hidden
    lips = np.clip(skin * np.array([0.6, 0.15, 0.2]), 0, 1)
    _paint(picture, mouth, lips)
    light = generator.normal(1.0, 0.1, (n, 1, 1))
    picture *= light.astype(np.float32)
    grain = generator.standard_normal(picture.shape, dtype=np.float32)
    grain *= style.noise
    picture += grain
    picture *= 255.0
    np.clip(picture, 0, 255, out=picture)
    return np.moveaxis(picture.astype(np.uint8), 0, -1).reshape(n, -1)


def _ellipse(
    x: Pixels,
    y: Pixels,
    wide: Pixels | float,
    high: Pixels | float,
    soft: float,
) -> Pixels:
    """Share of each pixel inside an ellipse at the origin, with a soft edge."""
    distance = np.sqrt((x / wide) ** 2 + (y / high) ** 2) - 1.0
    return np.clip(0.5 - distance * wide / soft, 0, 1)


def _paint(picture: Pixels, share: Pixels, colour: FloatArray) -> None:
    """Lay a colour, shape (n, 3), over the picture where `share` is positive."""
    layer = share.astype(np.float32)
    for plane, shade in zip(picture, colour.T.astype(np.float32), strict=True):
        plane += layer * (shade[:, None, None] - plane)
