"""Cut one table into silos, and each silo into splits (train, test, …), seeded.

A cut into silos, for simulations, is ``(codes, names)``: the silo of every row, and the
silos' names. All are pure: the same arguments, the same cut. Every row is in exactly
one silo, and no silo is left empty as long as there are at least as many rows as silos.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pffl.data.columns import as_column, encode_values
from pffl.data.rows import Rows, Silo, row_contents
from pffl.errors import DataError, Problems, UsageError, wrong
from pffl.typing import FloatArray, IntArray

Partition: TypeAlias = tuple[IntArray, tuple[str, ...]]
#: Parts under noise are drawn by it, the same for the life of a table: whoever is held
#: out of one run is held out of all, so that training and held-out people have a
#: budget each. It need not be secret.
KEY = b"pffl parts"
CALIBRATION = "calibration"  # rows that a promise for new people is tested on
People: TypeAlias = tuple[tuple[str, ...], IntArray]  # their ids, and who each row is


def equal(rows: int, silos: int, seed: int = 0) -> Partition:
    """Silos of equal size (up to one row), drawn at random: identically distributed.

    >>> codes, names = equal(7, 3, seed=0)
    >>> np.bincount(codes), names
    (array([3, 2, 2]), ('silo 1', 'silo 2', 'silo 3'))
    """
    names = silo_names(silos, rows)
    codes = np.empty(rows, dtype=np.int64)
    codes[np.random.default_rng(seed).permutation(rows)] = np.arange(rows) % silos
    return codes, names


def dirichlet(values: ArrayLike, alpha: float, silos: int, seed: int = 0) -> Partition:
    """Share out the rows of each distinct value by a draw from Dirichlet(α, …, α).

    The usual way to make silos differ: a small α gives each value to few silos, a large
    α makes all silos equal. `values` may be any column: the label, a group, a category.

    Parameters
    ----------
    values
        The column on which the silos shall differ.
    alpha
        Concentration α > 0.
    silos
        Number of silos.
    seed
        Seed of the draw.
    """
    if not (np.isfinite(alpha) and alpha > 0):
        raise UsageError(f"'alpha' must be a positive number. Got {alpha} instead.")
    distinct, codes = encode_values(values, "column of the Dirichlet cut")
    names = silo_names(silos, len(codes))
    generator = np.random.default_rng(seed)
    silo = np.empty(len(codes), dtype=np.int64)
    for code in range(len(distinct)):
        members = generator.permutation(np.flatnonzero(codes == code))
        shares = generator.dirichlet(np.full(silos, alpha))
        # Cut at the rounded cumulative shares: each silo is within a row of its share.
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        silo[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return fill_empty(silo, silos), names


def quantile_bands(values: ArrayLike, silos: int) -> Partition:
    """Cut along the order of a column into bands of equal size (up to one row).

    Equal values may lie on both sides of a border, in the order of the rows; that keeps
    the sizes equal and no band empty.

    >>> quantile_bands([30, 10, 20, 40], 2)
    (array([1, 0, 0, 1]), ('band 1 (10 to 20)', 'band 2 (30 to 40)'))
    """
    column, _ = as_column(values), encode_values(values, "column of the bands")
    silo_names(silos, len(column))
    order = np.argsort(column, kind="stable")
    codes, names = np.empty(len(column), dtype=np.int64), []
    for band, members in enumerate(np.array_split(order, silos)):
        codes[members] = band
        ends = [str(column[place]) for place in members[[0, -1]]]
        names.append(f"band {band + 1} ({' to '.join(ends)})")
    return codes, tuple(names)


def fill_empty(codes: IntArray, count: int) -> IntArray:
    """Give each empty silo one row of the largest silo, where there are enough rows."""
    sizes = np.bincount(codes, minlength=count)
    if len(codes) < count or sizes.all():
        return codes
    filled = codes.copy()
    for silo in np.flatnonzero(sizes == 0):
        donor = int(sizes.argmax())
        filled[np.flatnonzero(filled == donor)[-1]] = silo
        sizes[donor] -= 1
        sizes[silo] = 1
    return filled


def silo_names(silos: int, rows: int | None = None) -> tuple[str, ...]:
    """Return ``silo 1``, ``silo 2``, …, padded so that they sort in order.

    More than there are `rows` to share out are refused.
    """
    if isinstance(silos, bool) or int(silos) != silos or silos < 1:
        raise UsageError(f"'silos' must be a whole number ≥ 1. Got {silos} instead.")
    if rows == 0:
        raise DataError("no-rows:silo-names")
    if rows is not None and silos > rows:
        raise DataError("no-training-rows:silo-names", silos=silos, rows=rows)
    return tuple(f"silo {k + 1:0{len(str(silos))}d}" for k in range(silos))


Plan: TypeAlias = list[tuple[str, dict[str, IntArray]]]


def distribute(take: Callable[[IntArray], Rows], plan: Plan) -> tuple[Silo, ...]:
    """Silos with the rows that the plan gives them, taken by their numbers.

    The rows are taken once, split by split and silo by silo, and the silos hold views
    of that one copy: no second copy of the data is ever made.
    """
    places = [(k, split) for split in plan[0][1] for k in range(len(plan))]
    wanted = [plan[k][1][split] for k, split in places]
    gathered, start = take(np.concatenate(wanted)), 0
    views: list[dict[str, Rows]] = [{} for _ in plan]
    for (k, split), rows in zip(places, wanted, strict=True):
        views[k][split] = gathered.take(slice(start, start := start + len(rows)))
    return tuple(Silo(name, k, views[k]) for k, (name, _) in enumerate(plan))


def split_index(
    silo: IntArray,
    silo_names: Sequence[str],
    fractions: Mapping[str, float],
    *,
    among: IntArray | None = None,
    people: People | None = None,
    seed: int = 0,
) -> Plan:
    """Row numbers of each silo's splits; silos without rows are left out.

    Of all rows, or of those `among` them alone. Where `people` are known, all rows of
    a person are in one split, in all silos (`draw_people`). Otherwise the generator of
    a silo is spawned from the seed and the silo's place, so that one silo's split does
    not depend on the others' sizes.
    """
    check_fractions(fractions)
    parts_of = None if people is None else draw_people(people, silo, fractions, seed)
    rows = np.arange(len(silo)) if among is None else among
    counts = np.bincount(silo[rows], minlength=len(silo_names))
    ordered = rows[np.argsort(silo[rows], kind="stable")]
    members = np.split(ordered, np.cumsum(counts)[:-1])
    plan: Plan = []
    for k, name in enumerate(silo_names):
        if not counts[k]:
            continue
        if parts_of is None:
            spawned = np.random.SeedSequence(seed, spawn_key=(k,))
            generator = np.random.default_rng(spawned)
            parts = draw_parts(int(counts[k]), fractions, generator)
        else:
            own = parts_of[members[k]]
            parts = {split: np.flatnonzero(own == split) for split in _used(fractions)}
        plan.append((name, {split: members[k][part] for split, part in parts.items()}))
    if not plan:
        raise DataError("no-training-rows:split-index")
    return plan


def draw_people(
    people: People, silo: IntArray, fractions: Mapping[str, float], seed: int
) -> NDArray[np.str_]:
    """Split of each row, the same for all rows of a person, wherever they are.

    A person's split depends on the id and the seed alone, so that sites that never met
    agree on it. Only where a silo would have no training rows, the person of it that is
    nearest to training moves there with all rows.
    """
    ids, person = people
    texts = [f"{seed}\0{name}".encode() for name in ids]
    hashed = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    draws = np.array([int.from_bytes(one) / 2.0**64 for one in hashed])
    split = drawn_parts(draws, fractions)
    trained = np.unique(silo[split[person] == "train"])
    for k in np.setdiff1d(silo, trained):
        own = person[silo == k]
        if (split[own] != "train").all():  # who moved may be here, too
            split[own[draws[own].argmax()]] = "train"
    return split[person]


def drawn_parts(draws: FloatArray, fractions: Mapping[str, float]) -> NDArray[np.str_]:
    """Split of each number in [0, 1); what the fractions leave is ``train``."""
    names = _used(fractions)[1:]
    edges = np.cumsum([fractions[name] for name in names])
    return np.array([*names, "train"])[np.searchsorted(edges, draws, side="right")]


def _used(fractions: Mapping[str, float]) -> tuple[str, ...]:
    """Splits that have rows: ``train``, and those with a share."""
    return ("train", *(name for name, share in fractions.items() if share > 0))


def draw_parts(
    count: int, fractions: Mapping[str, float], generator: np.random.Generator
) -> dict[str, IntArray]:
    """Positions of ``train`` and of the named fractions, each in the given order.

    Sizes are rounded to the nearest row, but one row is always left for training.

    >>> parts = draw_parts(5, {"test": 0.2}, np.random.default_rng(0))
    >>> {name: len(part) for name, part in parts.items()}
    {'train': 4, 'test': 1}
    """
    shuffled = generator.permutation(count)
    parts: dict[str, IntArray] = {}
    start = 0
    for name, fraction in fractions.items():
        if fraction > 0:
            size = min(int(np.floor(fraction * count + 0.5)), max(0, count - 1 - start))
            parts[name] = np.sort(shuffled[start : start + size])
            start += size
    return {"train": np.sort(shuffled[start:]), **parts}


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Refuse shares outside [0, 1), and shares that leave nothing to train on."""
    with Problems("split", UsageError) as problems:
        for name, value in fractions.items():
            if not 0 <= value < 1:
                problems.add(wrong(f"{name}_fraction", "a split", "in [0, 1)", value))
        if sum(fractions.values()) >= 1:
            told = f"{' and '.join(fractions)} leave nothing to train on"
            problems.add(f"[no-training-rows] {told}")


def keyed_silos(
    silos: Sequence[Silo], share: float, ids: Sequence[str] | None, *, simulated: bool
) -> tuple[Silo, ...]:
    """Deal all rows anew, each person by a keyed hash of that person alone.

    One person more, less or changed changes that person's row and no other. Of several
    rows with an id one counts. About `share` of the people are held out. Silos that
    were simulated are dealt, too.
    """
    parts = [(k, rows) for k, s in enumerate(silos) for rows in s.splits.values()]
    whole = Rows.joined([rows for _, rows in parts])
    place = np.repeat([k for k, _ in parts], [len(rows) for _, rows in parts])
    names = [b"" if simulated else silo.name.encode() for silo in silos]
    if whole.person is not None:
        if ids is None:
            raise UsageError("needs-ids")
        counted: dict[int, tuple[bytes, int]] = {}
        content = list(row_contents(whole))
        for i, who in enumerate(whole.person.tolist()):
            text = b"\0".join((ids[who].encode(), content[i], names[place[i]]))
            drawn = hmac.digest(KEY, b"row of " + text, "sha256"), i
            counted[who] = min(counted.get(who, drawn), drawn)
        kept = np.array(sorted(i for _, i in counted.values()), dtype=np.int64)
        whole, place = whole.take(kept), place[kept]
    by_row = [names[k] for k in place.tolist()]
    u, v = keyed_draws(whole, KEY, ids, by_row)
    if simulated:
        place = np.floor(v * len(silos)).astype(np.int64)
    called = silo_names(len(silos)) if simulated else [silo.name for silo in silos]
    fractions = {"test": share}
    split, used = drawn_parts(u, fractions), _used(fractions)
    plan = [
        (name, {part: np.flatnonzero((place == k) & (split == part)) for part in used})
        for k, name in enumerate(called)
    ]
    return distribute(whole.take, plan)


def keyed_draws(
    rows: Rows,
    key: bytes,
    ids: Sequence[str] | None = None,
    marks: Sequence[bytes] | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return two numbers in [0, 1) for each row, which one row more changes for none.

    They are HMAC-SHA256 of the person's id, by the key. Where no id tells whose rows
    are about, each is a person, and they are those of the row, its mark, and how many
    equal ones came before: so equal rows go different ways, as people do who are drawn
    one by one, and m + 1 equal rows go where m of them went, and one more.
    """
    if rows.person is not None and ids is not None:
        texts = [b"id " + ids[who].encode() for who in rows.person.tolist()]
    else:
        seen: Counter[bytes] = Counter()
        texts = [b"row " + content for content in row_contents(rows)]
        for i, mark in enumerate(marks or [b""] * len(texts)):
            text = texts[i] + mark
            texts[i] = text + f" {seen[text]}".encode()
            seen[text] += 1
    found = [hmac.digest(key, text, "sha256") for text in texts]
    return (
        np.array([int.from_bytes(one[:6]) / 2.0**48 for one in found]),
        np.array([int.from_bytes(one[6:12]) / 2.0**48 for one in found]),
    )


def keyed_rows(
    rows: Rows, fractions: Mapping[str, float], key: bytes
) -> dict[str, Rows]:
    """Split into ``train`` and the named fractions, each row by a keyed hash."""
    check_fractions(fractions)
    drawn = drawn_parts(keyed_draws(rows, key)[0], fractions)
    parts = _used(fractions)
    return {name: rows.take(np.flatnonzero(drawn == name)) for name in parts}
