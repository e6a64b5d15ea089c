"""Oracles that are not edited together with the code that they hold.

`tests/frozen.toml` has a hash of the syntax tree of each frozen file, without imports,
docstrings and comments; `tests/hygiene/test_frozen.py` compares. To change a frozen
file, say why in CHANGELOG.md and record it in a commit of its own:

    python -m tests.frozen              # record all files that frozen.toml names
    python -m tests.frozen FILE ...     # freeze these, too
"""

from __future__ import annotations

import ast
import hashlib
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "frozen.toml"
HEAD = """\
# Hashes of frozen tests: syntax trees without imports, docstrings and comments.
# A change needs a line in CHANGELOG.md and `python -m tests.frozen`, in a commit of
# its own.

"""
#: Fields that later versions of Python have, or that say nothing.
SKIPPED = {"ctx", "kind", "type_comment", "type_ignores", "type_params"}


def recorded() -> dict[str, str]:
    """Hashes by path."""
    return tomllib.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def digest(source: str) -> str:
    """Hash what a file does: imports, docstrings, comments and layout are left out."""
    return hashlib.sha256(_told(ast.parse(source)).encode()).hexdigest()[:32]


def imports(source: str) -> set[str]:
    """Modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def _told(node: object) -> str:
    """Write a tree as text, alike in every version of Python."""
    if isinstance(node, list):
        return "[" + ",".join(map(_told, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = [one for one in value if not _left_out(one, value)]
        if name not in SKIPPED and value is not None and value != []:
            parts.append(f"{name}={_told(value)}")
    return f"{type(node).__name__}({','.join(parts)})"


def _left_out(node: ast.stmt, body: list[ast.stmt]) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return words and node is body[0] and isinstance(node.value.value, str)


def main() -> None:
    """Record the hashes."""
    paths = {*recorded(), *sys.argv[1:]}
    kept = sorted(path for path in paths if (ROOT / path).exists())
    hashes = {path: digest((ROOT / path).read_text("utf-8")) for path in kept}
    lines = [f'"{path}" = "{value}"\n' for path, value in hashes.items()]
    FILE.write_text(HEAD + "".join(lines), "utf-8")


if __name__ == "__main__":
    main()
