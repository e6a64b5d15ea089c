"""Model files that cannot be audited as they are, and what to paste instead.

None of them is ever loaded: a pickle can run any code. What an audit needs is a table
of probabilities, and two lines of Python write one where the model was made.
"""

from __future__ import annotations

from pathlib import Path

from pffl.data.formats import PICKLES
from pffl.errors import ArtefactError

KINDS = {
    **dict.fromkeys((".joblib", ".pkl", ".pickle", ".sav"), "pickle"),
    ".onnx": "onnx",
    ".skops": "a scikit-learn model (skops)",
    **dict.fromkeys((".pt", ".pth", ".ckpt"), "a PyTorch model"),
    **dict.fromkeys((".h5", ".keras"), "a Keras model"),
    **dict.fromkeys((".ubj", ".bst", ".xgb"), "a boosted model"),
    **dict.fromkeys((".rds", ".rda", ".RData"), "an R object"),
    ".pmml": "a PMML model",
}
OUT = "probabilities.csv"
PASTE = {
    "pickle": (
        "import joblib, pandas; model = joblib.load({path!r})",
        "pandas.DataFrame(model.predict_proba(X), columns=model.classes_)"
        ".to_csv({out!r}, index=False)",
    ),
    "onnx": (
        "import onnxruntime, pandas; model = onnxruntime.InferenceSession({path!r})",
        "pandas.DataFrame(model.run(None, {{model.get_inputs()[0].name: X}})[1])"
        ".to_csv({out!r}, index=False)",
    ),
}
NAMES = {
    "pickle": "a Python pickle, which can run any code and is never opened",
    "onnx": "an ONNX model, which is not run here",
}


def refuse_other_models(path: Path) -> None:
    """Refuse a model file that is not read, with the lines that give what is."""
    kind = KINDS.get(path.suffix)
    if kind is None:
        with path.open("rb") as file:
            kind = "pickle" if file.read(2) in PICKLES else None
    if kind is None:
        return
    lines = [f"'{path}' is {NAMES.get(kind, kind)}."]
    if kind in PASTE:
        lines.append(
            "In Python, with the model's inputs for the rows of DATA as X, in order:"
        )
        lines += [f"  {one.format(path=str(path), out=OUT)}" for one in PASTE[kind]]
    else:
        lines.append(
            f"Where it was made, write '{OUT}': one row per row of DATA, in order, and "
            "one column per class, named after it (or one column, 'probability')."
        )
    lines.append(f"Then audit these: pffl audit {OUT} DATA … (or call pffl.audit)")
    raise ArtefactError("\n".join(lines))
