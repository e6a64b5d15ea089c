"""A federation: silos that share a schema, validated once, together."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pffl.data import checks, partition
from pffl.data import table as tables
from pffl.data.checks import listing, warn
from pffl.data.columns import (
    Column,
    TableEncoder,
    as_column,
    classes_of,
    encode_values,
)
from pffl.data.partition import CALIBRATION, People
from pffl.data.read import Table
from pffl.data.rows import (
    Matrix,
    Rows,
    Silo,
    as_csr,
    as_inputs,
    contents,
    is_sparse,
    row_contents,
)
from pffl.data.rows import saved as saved_arrays
from pffl.data.schema import Attribute, Schema
from pffl.data.table import TableOptions, noted
from pffl.errors import DataError, Problems, UsageError
from pffl.files import digest, write
from pffl.text import few, visible
from pffl.typing import FloatArray, IntArray


def named_columns(sensitive_features: Any, rows: int) -> dict[str, NDArray[np.generic]]:
    """Return protected attributes by name; columns of an array by their number.

    A vector without a name is called ``group``. Without any attribute, all rows are of
    one group.
    """
    if sensitive_features is None:
        return {"group": np.full(rows, "everyone")}
    names = getattr(sensitive_features, "columns", sensitive_features)  # a DataFrame's
    if names is not sensitive_features or isinstance(sensitive_features, Mapping):
        return {str(name): as_column(sensitive_features[name]) for name in names}
    name, values = name_of(sensitive_features, "group"), as_column(sensitive_features)
    if values.ndim != 2:
        return {name: values}
    many = range(1, values.shape[1] + 1)
    called = [name] if len(many) == 1 else [f"{name} {j}" for j in many]
    return dict(zip(called, values.T, strict=True))


def name_of(column: object, default: str) -> str:
    """Return what a pandas Series is called, if by a text."""
    name = getattr(column, "name", None)
    return name if isinstance(name, str) and name else default


def as_weights(values: NDArray[np.generic]) -> FloatArray:
    """Return weights given as an array; refuse what cannot be one."""
    weights = np.asarray(_floats(values, "sample_weight"), dtype=np.float64)
    if told := checks.weight_problem(weights):
        raise DataError("bad-weights:as-weights", told=told)
    return weights


def _floats(values: Any, what: str) -> Matrix:
    """Return numbers in a type of inputs, or say what is not a number."""
    try:
        return as_inputs(values)
    except (TypeError, ValueError) as error:
        raise DataError("not-numbers:floats", what=what, error=error) from error


def _check_order(X: Any, **others: Any) -> None:
    """Refuse pandas objects whose rows have the same names in another order."""
    for name, other in others.items():
        if not all(hasattr(getattr(o, "index", None), "equals") for o in (X, other)):
            continue
        first, own = X.index, other.index
        if not first.equals(own) and first.sort_values().equals(own.sort_values()):
            raise DataError("other-order:check-order", name=name)


class PooledRows(NamedTuple):
    """All rows of one split, for simulations and comparisons only."""

    X: Matrix
    y: FloatArray
    group: IntArray
    silo: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Silos with one schema.

    Parameters
    ----------
    schema
        What the silos agree on.
    silos
        The silos, each with a ``train`` split and usually a ``test`` split.
    name
        What to call the data in reports.
    synthetic
        Whether the rows were generated; said wherever results are shown.
    notes
        What was done to the rows on the way (dropped silos, mapped labels, …).
    encoding
        How a table becomes rows: as the one that it was made from did. Of data that
        never were a table, every input is a column of numbers.
    learnt_from
        Whether models are trained on it: then rows of one label alone are refused.
    ids
        Of people, in the order of `Rows.person`, where an id says whose rows are.
    ranges
        What numeric inputs are between, by their names, as far as that is known by what
        they mean: with noise they need not be given again.
    test_fraction
        Share of people that a private run holds out: see `keyed`.
    simulated
        Whether rows were shared out over silos, and do not live there.
    sites
        Names of silos that were declared: a private run also has those without rows.
    undeclared
        What was read off the rows, and not declared: no private run takes it.
    private
        Whether rows were dealt by `keyed`: silos may then be empty.

    Raises
    ------
    DataError
        The rows cannot be used as they are; all problems are reported at once.

    Examples
    --------
    >>> import pandas as pd, pffl
    >>> table = pd.DataFrame(
    ...     {"age": [31, 45, 62] * 20, "sex": ["f", "m"] * 30, "ill": [0, 0, 1, 1] * 15}
    ... )
    >>> pffl.Federation.from_table(table, label="ill", group="sex")
    Federation 'table': 1 silo, 48 train and 12 test rows, 1 input
    target 'ill': 0, 1
    groups: f, m
    """

    schema: Schema
    silos: tuple[Silo, ...]
    name: str = "data"
    synthetic: bool = False
    notes: tuple[str, ...] = field(default=())
    encoding: TableEncoder = None  # type: ignore[assignment]
    learnt_from: bool = True
    ids: tuple[str, ...] | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    test_fraction: float = 0.2
    simulated: bool = False
    sites: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    private: bool = False

    def __post_init__(self) -> None:
        if self.encoding is None:
            object.__setattr__(self, "encoding", TableEncoder.of_numbers(self.schema))
        with Problems(f"federation '{self.name}'", DataError) as problems:
            checks.check_silos(
                self.schema,
                self.silos,
                problems,
                labels=self.learnt_from and not self.private,
                empty=self.private,
            )

    @classmethod
    def from_table(cls, table: Table, **options: Any) -> Federation:
        """Build from a table; what was inferred is in `notes`.

        Numbers stay as they are, categories become one input per value with one
        vocabulary for all silos, rows are never dropped. All flaws are reported in one
        error.

        Parameters
        ----------
        table
            A DataFrame (pandas, polars, Arrow), or a file (CSV, Parquet, Excel, …).
        label, group
            Column to predict; protected column or columns (out of the inputs).
        silo
            Column that says where a row lives (default: all rows are in one silo); or
            else:
        silos, partition
            Number of silos to simulate, cut at random into ``equal`` parts, by a
            ``("dirichlet", column, concentration)`` draw (default: the label, 1), or
            into ``("quantile_bands", column)``.
        drop
            Columns to leave out. All others are inputs.
        inputs
            Columns that are inputs although they are protected, or called like a
            protected attribute (race, religion, date of birth, …). Other such columns
            are left out, and named.
        columns
            What columns hold, where that is not to be read off the rows. By name a
            `kind` ("number", "category" or "text"), the `values` of a category (others
            count as ``other``; of a group ``missing`` may be one; of the label they are
            in the order of their codes, the positive one of two last), the `range` of a
            number, whether a missing one gets an `indicator`, and to how many inputs
            the words of a text are hashed (`hash`). A private run asks for all columns
            in use.
        id
            Column that says who a row is about: not an input. All rows of a person are
            then in one split, in all silos: no person is on both sides.
        weight
            Column that says how much a row counts in every mean, ≥ 0: not an input.
            Rows of weight 0 are left out.
        classification
            Whether the label is a class; otherwise a number.
        missing
            Missing inputs: ``refuse``; ``indicator``: the mean of those present over
            all silos, and an extra input, or an extra category.
        missing_label
            Missing labels: ``refuse``, or ``drop`` these rows, and say so.
        test_fraction, validation_fraction, random_state
            As for `from_rows`.
        """
        keys = [key.name for key in fields(TableOptions)]
        wrong = [key for key in ("label", "group") if key not in options]
        if wrong := wrong + [key for key in options if key not in keys]:
            named = listing(map(repr, wrong))
            raise UsageError("wrong-keyword", wrong=named, keys=", ".join(keys))
        name = Path(table).stem if isinstance(table, str | os.PathLike) else "table"
        known = tables.encode_table(table, TableOptions(**options))
        federation = cls.from_rows(**known, name=name)
        parts = [silo.rows() for silo in federation.silos]
        leaks = tables.leak_warnings(known["encoding"], parts)
        for leak in leaks:
            warn(leak)
        ids, who = known["people"] or ((), [])
        places = set(zip(who, known["silo"], strict=False))
        if more := len(places) - len(ids):
            warn(f"people are in more than one silo ({more:,} more times than once)")
        return replace(federation, notes=(*federation.notes, *leaks))

    @classmethod
    def alike(
        cls,
        table: Table,
        encoding: TableEncoder,
        options: TableOptions,
        *,
        name: str = "table",
        learnt_from: bool = True,
    ) -> Federation:
        """Build from another table with labels, read as the first one was.

        Parameters
        ----------
        table
            A DataFrame, or a file.
        encoding
            How the first table became rows; so will this one.
        options
            Silos and splits; a column of silos or ids need not be there.
        name
            What to call the rows.
        learnt_from
            As for `Federation`.
        """
        known = tables.encode_alike(table, encoding, options, name)
        return cls.from_rows(**known, name=name, learnt_from=learnt_from)

    @classmethod
    def from_arrays(
        cls,
        X: object,
        y: object,
        *,
        sensitive_features: object,
        silo: object = None,
        sample_weight: object = None,
        features: Sequence[str] | None = None,
        classification: bool = True,
        **options: Any,
    ) -> Federation:
        """Build from pooled arrays: one row per example.

        Parameters
        ----------
        X, y
            Inputs, shape (n, features), and labels (any values) or numbers. Names of a
            DataFrame or Series are kept. SciPy's sparse matrices stay sparse.
        sensitive_features
            Protected attributes: a vector, a DataFrame, an array of columns, or a
            mapping from name to vector. None: all rows are of one group.
        silo
            Silo of each row (any values). Default: all rows are in one silo.
        sample_weight
            How much each row counts in every mean, ≥ 0 (default: equally). Rows of
            weight 0 are left out.
        features
            Names of the columns of `X`, if it has none.
        classification
            Whether `y` holds classes; otherwise numbers.
        options
            As for `from_rows`: test_fraction, validation_fraction, name, random_state.
        """
        _check_order(X, y=y, sensitive_features=sensitive_features, silo=silo)
        inputs: Matrix = as_csr(X) if is_sparse(X) else np.asarray(X)
        target, called = as_column(y), name_of(y, "label")
        if features is None:
            width = inputs.shape[1] if inputs.ndim == 2 else 0
            features = getattr(X, "columns", [f"x{j}" for j in range(width)])
        if silo is None:
            silo = np.repeat(partition.silo_names(1), len(target))
        protected = named_columns(sensitive_features, len(target))
        called_so = {f"protected attribute '{n}'": v for n, v in protected.items()}
        columns = {"silo": as_column(silo), **called_so}
        vectors = {"y": target, **columns}
        if sample_weight is not None:
            vectors["sample_weight"] = as_column(sample_weight)
        shapes = {"X": inputs.shape, **{name: v.shape for name, v in vectors.items()}}
        expected = dict.fromkeys(vectors, target.shape[:1])
        if shapes != {"X": (len(target), len(features)), **expected}:
            raise DataError(
                "wrong-shape:from-arrays", width=len(features), shapes=shapes
            )
        labels, weight = tuple[str, ...](), None
        coded: list[tuple[tuple[str, ...], IntArray]] = []
        with Problems("arrays", DataError) as problems:
            with noted(problems):
                if classification:
                    labels, target = encode_values(target, "label")
                target = np.asarray(_floats(target, "label"))
            for where, values in columns.items():
                with noted(problems):
                    coded.append(encode_values(values, where))
                    numbers = values.dtype.kind == "f" and (values % 1 != 0).any()
                    if numbers and len(coded[-1][0]) > tables.MAX_NUMERIC_GROUPS:
                        told = "many different numbers: cut it into bands"
                        problems.add(f"[too-many-groups] {where}: {told}")
            with noted(problems):
                inputs = _floats(inputs, "X")
            if sample_weight is not None:
                with noted(problems):
                    weight = as_weights(vectors["sample_weight"])
        (silo_names, silo_codes), *groups = coded
        pairs = zip(protected, groups, strict=True)
        attributes = tuple(Attribute(name, values) for name, (values, _) in pairs)
        schema = Schema(tuple(map(str, features)), attributes, labels, called)
        among = [f for f in schema.features if {f, f.split("=", 1)[0]} & set(protected)]
        if among:
            warn(f"protected attribute among the inputs: {listing(among)}")
        mapping = ", ".join(f"'{label}' → {code}" for code, label in enumerate(labels))
        group = schema.combine(np.stack([codes for _, codes in groups], axis=1))
        rows = replace(Rows.of(inputs, target, group), weight=weight)
        return cls.from_rows(
            schema,
            rows,
            silo_codes,
            silo_names,
            notes=(f"label: {mapping}",) if labels else (),
            encoding=TableEncoder.of_numbers(schema, classes_of(y, labels)),
            undeclared=(called, *protected, "silo"),
            **options,
        )

    @classmethod
    def from_rows(
        cls,
        schema: Schema,
        rows: Rows,
        silo: IntArray,
        silo_names: Sequence[str],
        *,
        test_fraction: float = 0.2,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        people: People | None = None,
        notes: Sequence[str] = (),
        **known: Any,
    ) -> Federation:
        """Distribute encoded rows over silos and split each silo, seeded.

        Parameters
        ----------
        schema, rows
            What the silos agree on, and all rows.
        silo, silo_names
            Code of each row's silo, and the silos' names.
        test_fraction, validation_fraction
            Share of each silo's rows kept for testing and validation, drawn with
            `random_state` within each silo.
        random_state
            Seed of the split. Silos without rows are left out, and named in `notes`.
        people
            Ids, and the person of each row: all rows of a person stay in one split.
        notes, known
            Fields of the `Federation`: name, synthetic, encoding, ranges, …
        """
        fractions = {"test": test_fraction, "validation": validation_fraction}
        counting = np.arange(len(rows))
        if rows.weight is not None and rows.weight.any():
            counting = np.flatnonzero(rows.weight)
            if len(counting) < len(rows):
                absent = len(rows) - len(counting)
                notes = (*notes, f"{absent:,} rows of weight 0 were left out")
            if len(counting) > 2 and 2 * rows.weight.max() > rows.weight.sum():
                most = f"has most of the weight ({rows.weight.max():g})"
                warn(f"one row of {len(counting):,} {most}")
        told: Any = {"among": counting, "people": people, "seed": random_state}
        plan = partition.split_index(silo, silo_names, fractions, **told)
        filled = {name for name, _ in plan}
        if dropped := [name for name in silo_names if name not in filled]:
            notes = (*notes, f"dropped silos without rows: {listing(dropped)}")
        if people is not None:
            rows = replace(rows, person=people[1])
        return cls(
            schema,
            partition.distribute(rows.take, plan),
            notes=tuple(notes),
            ids=None if people is None else people[0],
            test_fraction=test_fraction,
            **known,
        )

    def with_inputs(self, values: Matrix, names: Sequence[str]) -> Federation:
        """Return rows whose only input is a number with that row of `values` instead.

        Parameters
        ----------
        values
            Inputs, shape (n, names).
        names
            What to call them.
        """
        columns = tuple(Column(name, "number") for name in names)
        encoding, silos = replace(self.encoding, columns=columns), []
        for silo in self.silos:
            splits = {
                split: replace(r, X=values[np.asarray(r.X)[:, 0].astype(np.int64)])
                for split, r in silo.splits.items()
            }
            silos.append(replace(silo, splits=splits))
        schema = encoding.schema
        return replace(self, schema=schema, silos=tuple(silos), encoding=encoding)

    def keyed(self) -> Federation:
        """Return the rows as a private run takes them: dealt by a keyed hash.

        One person more, less or changed changes that person's row and no other. Of
        several rows with an id one counts; it, and the part it is in, are hashes of
        the person's own id and rows, or of the row where there are no ids. Simulated
        silos are dealt anew, too: only totals over silos are released.

        Raises
        ------
        UsageError
            Something was read off the rows that must be declared, or rows are set apart
            for validation or calibration, which no private run asks of.
        """
        if self.private:
            return self
        with Problems("not private", UsageError) as problems:
            if self.undeclared:
                names = listing(map(repr, self.undeclared))
                problems.add("needs-columns", names=names, remedy=tables.REMEDY)
            parts = {s for silo in self.silos for s in silo.splits}
            if apart := sorted(parts - {"train", "test"}):
                problems.add("not-under-noise:keyed", apart=listing(apart))
        share = self.test_fraction if "test" in self.splits else 0.0
        there = {silo.name: silo for silo in self.silos}
        empty = self.silos[0].rows("train").take(np.zeros(0, np.int64))
        silos = [
            there.get(name, Silo(name, k, {"train": empty}))
            for k, name in enumerate(self.sites or there)
        ]
        dealt = partition.keyed_silos(silos, share, self.ids, simulated=self.simulated)
        return replace(self, silos=dealt, notes=(), private=True)

    def with_calibration(self, fraction: float, *, random_state: int = 0) -> Federation:
        """Set apart a share of each silo's training rows, to test a promise on.

        All rows of a person stay together. See `pffl.Promise`.
        """
        if CALIBRATION in self.splits:
            raise UsageError("repeated-calibration")
        (rows, codes), people = self._whole("train"), None
        if rows.person is not None:
            many = int(rows.person.max(initial=-1)) + 1
            people = tuple(f"{CALIBRATION} {i}" for i in range(many)), rows.person
        share, names = {CALIBRATION: fraction}, self.silo_names
        plan = partition.split_index(
            codes, names, share, people=people, seed=random_state
        )
        cut = partition.distribute(rows.take, plan)
        pairs = zip(self.silos, cut, strict=True)
        silos = (
            replace(old, splits={**old.splits, **new.splits}) for old, new in pairs
        )
        return replace(self, silos=tuple(silos))

    def __len__(self) -> int:
        return len(self.silos)

    def __repr__(self) -> str:
        """Return what it holds, in a few lines."""
        rows = " and ".join(f"{self.rows(s):,} {s}" for s in self.splits)
        schema = self.schema
        lines = [
            f"Federation '{self.name}': {len(self):,} silo{'s'[: len(self) != 1]}, "
            f"{rows} rows, {schema.n_features:,} input{'s'[: schema.n_features != 1]}",
            f"target '{schema.target}': {few(schema.labels) or 'a number'}",
            f"groups: {few(schema.groups)}",
        ]
        return "\n".join(map(visible, lines))

    @cached_property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(silo.name for silo in self.silos)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        first, *others = self.silos
        return tuple(s for s in first.splits if all(s in k.splits for k in others))

    def rows(self, split: str = "train") -> int:
        """Total number of rows of a split."""
        return sum(len(silo.rows(split)) for silo in self.silos)

    def pooled(self, split: str = "train") -> PooledRows:
        """All rows of a split as `X, y, group, silo` arrays.

        For simulations and comparisons: a real federation cannot do this.
        """
        rows, silo = self._whole(split)
        return PooledRows(rows.X, rows.y, rows.group, silo)

    def _whole(self, split: str) -> tuple[Rows, IntArray]:
        parts = [silo.rows(split) for silo in self.silos]
        sizes = [len(part) for part in parts]
        return Rows.joined(parts), np.repeat(np.arange(len(parts)), sizes)

    def stacked(self) -> tuple[dict[str, NDArray[Any]], Rows]:
        """Return all rows, and of each its silo and split.

        Also whom it is about (``person``) and its ``weight``, where they are known.
        """
        parts = [(k.name, s, r) for k in self.silos for s, r in k.splits.items()]
        silos, splits, many = zip(*parts, strict=True)
        sizes, rows = [len(part) for part in many], Rows.joined(many)
        about = {"silo": np.repeat(silos, sizes), "split": np.repeat(splits, sizes)}
        known = {"person": rows.person, "weight": rows.weight}
        return about | {n: own for n, own in known.items() if own is not None}, rows

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write all rows as an npz file, which `pffl.verify` reads.

        Its arrays are split, silo, group, label, the person of a row (`person`, where
        an id told), how much it counts (`weight`, where rows have weights), and
        the inputs before scaling (`X`, or its compressed rows). Rows stay in order.
        """
        labels, (about, rows) = self.schema.labels, self.stacked()
        place, stream = Path(path), io.BytesIO()
        if place.suffix != ".npz":
            raise UsageError("wrong-format", place=place)
        columns: dict[str, Any] = {
            "group": np.array(self.schema.groups)[rows.group],
            "label": np.array(labels)[rows.y.astype(np.int64)] if labels else rows.y,
            "schema": np.array(self.schema.hash),
            **about,
            **saved_arrays(rows.X),
        }
        if isinstance(rows.X, np.ndarray):
            columns["features"] = np.array(self.schema.features)
        np.savez_compressed(stream, **columns)
        write(place, stream.getvalue())

    @property
    def _parts(self) -> list[Rows]:
        return [rows for silo in self.silos for rows in silo.splits.values()]

    @cached_property
    def weighted(self) -> bool:
        """Whether some rows do not count as one."""
        known = [rows.weight for rows in self._parts if rows.weight is not None]
        return any((weight != 1).any() for weight in known)

    @property
    def weight_range(self) -> list[float] | None:
        """Smallest and largest weight of a training row; None if all count as one."""
        if not self.weighted:
            return None
        found = np.concatenate([s.rows("train").counting.weights for s in self.silos])
        return [float(found.min()), float(found.max())]

    @cached_property
    def by_person(self) -> bool:
        """Whether an id names the person of each row."""
        return all(rows.person is not None for rows in self._parts)

    @cached_property
    def several(self) -> bool:
        """Whether an id says that some people have several rows."""
        who = [rows.person for rows in self._parts if rows.person is not None]
        if not who or not self.by_person:
            return False
        return len(np.unique(np.concatenate(who))) < sum(map(len, who))

    @cached_property
    def shared(self) -> int | None:
        """Number of people with rows in several silos; None without ids."""
        if not self.by_person:
            return None
        parts: Any = [[rows.person for rows in s.splits.values()] for s in self.silos]
        silos = [np.unique(np.concatenate(who)) for who in parts]
        return int((np.unique(np.concatenate(silos), return_counts=True)[1] > 1).sum())

    @cached_property
    def overlap(self) -> int:
        """Number of test rows that are also training rows: see `repeated`."""
        return self.repeated("test") if "test" in self.splits else 0

    def repeated(self, split: str) -> int:
        """Count the rows of a split that are also training rows.

        By ids, where an id column was named. Otherwise rows that equal a training row,
        which may be of another person with equal values.
        """
        train, asked = ([s.rows(name) for s in self.silos] for name in ("train", split))
        if self.by_person:
            known, who = (Rows.joined(parts).person for parts in (train, asked))
            return int(np.isin(who, known).sum())  # type: ignore[arg-type]
        seen = {hash(row) for rows in train for row in row_contents(rows)}
        return sum(hash(row) in seen for rows in asked for row in row_contents(rows))

    @cached_property
    def held_out(self) -> dict[str, str]:
        """SHA-256 of the rows of each split but ``train``: inputs and labels.

        Rows that count otherwise are the same rows: weights are no part of it.
        """
        splits = [split for split in self.splits if split != "train"]
        parts = {s: [silo.rows(s) for silo in self.silos] for s in splits}
        return {
            s: digest(*(a for r in parts[s] for a in (*contents(r.X), r.y)))
            for s in splits
        }

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the schema and all rows; names the data a result belongs to."""
        parts: list[str | NDArray[Any]] = [self.schema.hash]
        for silo in self.silos:
            for split in sorted(silo.splits):
                rows = silo.splits[split]
                parts.append(f"{silo.name}\0{split}\0{len(rows)}")
                parts += [*contents(rows.X), rows.y, rows.group]
                if rows.person is not None:
                    parts.append(rows.person)
                if rows.weight is not None:
                    parts += ["weight", rows.weight]
        return digest(*parts)
