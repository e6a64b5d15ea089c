"""A federation: silos that share a schema, validated once, together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pffl.data import tabular
from pffl.data.arrays import encode_arrays
from pffl.data.checks import check_silos, listing, protected_inputs, refuse_or_warn
from pffl.data.overlap import repeated_ids, repeated_rows
from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.data.split import distribute, split_index
from pffl.errors import DataError, Problems
from pffl.files import digest
from pffl.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from pffl.data.encoding import TableEncoding


class Pooled(NamedTuple):
    """All rows of one split, for simulations and comparisons only."""

    X: FloatArray
    y: FloatArray
    group: IntArray
    silo: IntArray


@dataclass(frozen=True, eq=False)
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
        How the table became rows, where it was a table: encodes new ones alike.
    known_overlap
        Test rows known to be training rows as well, where ids told; see `overlap`.
    """

    schema: Schema
    silos: tuple[Silo, ...]
    name: str = "data"
    synthetic: bool = False
    notes: tuple[str, ...] = field(default=())
    encoding: TableEncoding | None = None
    known_overlap: int | None = None

    from_table = classmethod(tabular.from_table)
    from_silos = classmethod(tabular.from_silos)

    def __post_init__(self) -> None:
        with Problems(f"federation '{self.name}'", DataError) as problems:
            check_silos(self.schema, self.silos, problems)

    @classmethod
    def from_arrays(
        cls,
        X: object,
        y: object,
        *,
        sensitive_features: object,
        silo: object,
        features: Sequence[str] | None = None,
        classification: bool = True,
        test_fraction: float = 0.2,
        validation_fraction: float = 0.0,
        name: str = "data",
        synthetic: bool = False,
        drop_empty: bool = False,
        strict: bool = False,
        seed: int = 0,
    ) -> Federation:
        """Build from pooled arrays: one row per example.

        Parameters
        ----------
        X, y
            Inputs, shape (n, features), and labels (any values) or numbers.
        sensitive_features
            Protected attributes: a vector, or a mapping from name to vector.
        silo
            Silo of each row (any values).
        features
            Names of the columns of `X`.
        classification
            Whether `y` holds classes; otherwise numbers.
        test_fraction, validation_fraction
            Share of each silo's rows kept for testing and validation, drawn with
            `seed` within each silo.
        name, synthetic
            As for `Federation`.
        drop_empty
            Leave out silos without training rows (said in `notes`) instead of
            refusing them.
        strict
            Refuse, instead of warning of, inputs named like a protected attribute.
        seed
            Seed of the split.
        """
        arrays = encode_arrays(
            X, y, sensitive_features, silo, features, classification=classification
        )
        protected = protected_inputs(arrays.schema)
        if protected:
            refuse_or_warn(
                f"protected attribute among the inputs: {listing(protected)}",
                strict=strict,
            )
        return cls.from_rows(
            arrays.schema,
            arrays.rows,
            arrays.silo,
            arrays.silo_names,
            test_fraction=test_fraction,
            validation_fraction=validation_fraction,
            name=name,
            synthetic=synthetic,
            drop_empty=drop_empty,
            seed=seed,
            notes=arrays.notes,
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
        name: str = "data",
        synthetic: bool = False,
        drop_empty: bool = False,
        seed: int = 0,
        notes: Sequence[str] = (),
        encoding: TableEncoding | None = None,
        ids: IntArray | None = None,
    ) -> Federation:
        """Distribute encoded rows over silos and split each silo, seeded.

        Parameters
        ----------
        schema, rows
            What the silos agree on, and all rows.
        silo, silo_names
            Code of each row's silo, and the silos' names.
        test_fraction, validation_fraction, name, synthetic, drop_empty, seed
            As for `from_arrays`.
        notes, encoding
            As for `Federation`.
        ids
            Who each row is about, to find people on both sides of the split.
        """
        fractions = {"test": test_fraction, "validation": validation_fraction}
        plan, dropped = split_index(
            silo, silo_names, fractions, drop_empty=drop_empty, seed=seed
        )
        if dropped:
            notes = (*notes, f"dropped silos without rows: {', '.join(dropped)}")
        repeated = None if ids is None else repeated_ids(ids, plan)
        silos = distribute(rows, plan)
        return cls(schema, silos, name, synthetic, tuple(notes), encoding, repeated)

    def __len__(self) -> int:
        return len(self.silos)

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(silo.name for silo in self.silos)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        first, *others = self.silos
        return tuple(s for s in first.splits if all(s in k.splits for k in others))

    def rows(self, split: str = "train") -> int:
        """Total number of rows of a split."""
        return sum(len(silo.rows(split)) for silo in self.silos)

    def pooled(self, split: str = "train") -> Pooled:
        """All rows of a split as `X, y, group, silo` arrays.

        For simulations and comparisons: a real federation cannot do this.
        """
        parts = [silo.rows(split) for silo in self.silos]
        return Pooled(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.group for part in parts]),
            np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        )

    @cached_property
    def overlap(self) -> int:
        """Number of test rows that are also training rows; 0 if none, or if unknowable.

        Exact where an id column was named. Otherwise equal rows count only where rows
        are so varied that chance does not explain them; hold-out statements are refused
        when it is positive.
        """
        if self.known_overlap is not None:
            return self.known_overlap
        if "test" not in self.splits:
            return 0
        return repeated_rows(
            [silo.rows("train") for silo in self.silos],
            [silo.rows("test") for silo in self.silos],
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the schema and all rows; names the data a result belongs to."""
        parts: list[str | NDArray[Any]] = [self.schema.hash]
        for silo in self.silos:
            for split in sorted(silo.splits):
                rows = silo.splits[split]
                parts.append(f"{silo.name}\0{split}\0{len(rows)}")
                parts += [rows.X, rows.y, rows.group]
        return digest(*parts)
