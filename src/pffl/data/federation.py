"""A federation: silos that share a schema, validated once, together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pffl.data.checks import check_silos
from pffl.data.encode import encode_labels, encode_values
from pffl.data.schema import Attribute, Schema
from pffl.data.silo import Rows, Silo
from pffl.data.split import distribute
from pffl.errors import DataError, Problems
from pffl.typing import FloatArray, IntArray


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
    """

    schema: Schema
    silos: tuple[Silo, ...]
    name: str = "data"
    synthetic: bool = False
    notes: tuple[str, ...] = field(default=())

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
        seed
            Seed of the split.
        """
        inputs = np.asarray(X)
        columns = (
            tuple(f"x{j}" for j in range(inputs.shape[1]))
            if features is None
            else tuple(features)
        )
        protected = (
            {str(k): np.asarray(v) for k, v in sensitive_features.items()}
            if isinstance(sensitive_features, Mapping)
            else {"group": np.asarray(sensitive_features)}
        )
        silo_values = np.asarray(silo)
        with Problems("arrays", DataError) as problems:
            lengths = {
                "X": len(inputs),
                "y": len(np.asarray(y)),
                "silo": len(silo_values),
                **{f"'{k}'": len(v) for k, v in protected.items()},
            }
            if len(set(lengths.values())) > 1:
                problems.add(f"lengths differ: {lengths}")
            if len(columns) != inputs.shape[1]:
                problems.add(f"{len(columns)} names for {inputs.shape[1]} columns")
        target, labels = encode_labels(np.asarray(y), classification=classification)
        attributes, codes = [], []
        for attribute, values in protected.items():
            names, code = encode_values(values, f"protected attribute '{attribute}'")
            attributes.append(Attribute(attribute, names))
            codes.append(code)
        schema = Schema(columns, tuple(attributes), labels)
        rows = Rows.of(inputs, target, schema.combine(np.stack(codes, axis=1)))
        names, silo_codes = encode_values(silo_values, "silo")
        return cls.from_rows(
            schema,
            rows,
            silo_codes,
            names,
            test_fraction=test_fraction,
            validation_fraction=validation_fraction,
            name=name,
            synthetic=synthetic,
            drop_empty=drop_empty,
            seed=seed,
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
    ) -> Federation:
        """Distribute encoded rows over silos and split each silo, seeded."""
        fractions = {"test": test_fraction, "validation": validation_fraction}
        silos, notes_ = distribute(
            rows, silo, silo_names, fractions, drop_empty=drop_empty, seed=seed
        )
        return cls(schema, silos, name, synthetic, (*notes, *notes_))

    def __len__(self) -> int:
        return len(self.silos)

    @property
    def silo_names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(silo.name for silo in self.silos)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that every silo has."""
        return tuple(s for s in self.silos[0].splits if all(s in k.splits for k in self.silos))

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
    def fingerprint(self) -> str:
        """SHA-256 over the schema and all rows; names the data a result belongs to."""
        digest = hashlib.sha256(self.schema.hash.encode())
        for silo in self.silos:
            for split in sorted(silo.splits):
                rows = silo.splits[split]
                digest.update(f"{silo.name}\0{split}\0{len(rows)}".encode())
                for array in (rows.X, rows.y, rows.group):
                    digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()
