"""What tests may know of the package, and what every error carries."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from pffl import errors

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\[[a-z0-9]+(-[a-z0-9]+)+\] ")
INSIDE = ROOT / "tests" / "inside.py"
#: Errors whose class says what is wrong; all others name it in brackets.
SENTENCES = errors.sentences()
NAMED = {"Malformed", "Unreadable", "UsageError"}
OURS = {n for n, c in inspect.getmembers(errors, inspect.isclass) if n != "Problems"}
CODED = OURS - NAMED - {"MissingExtraError"}


def trees(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def test_only_one_file_of_the_tests_knows_where_modules_lie() -> None:
    deep = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees("tests")
        if path != INSIDE
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(a.name for a in node.names)]
        if name and name.startswith("pffl.") and name.count(".") > 1
    ]
    assert deep == []


def first_text(node: ast.expr) -> str | None:
    """The literal beginning of a message; None if it is made elsewhere."""
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.JoinedStr):
        if re.match(r"f['\"]\[\{\w+\}\] ", ast.unparse(node)):
            return None  # f"[{code}] …"
        node = node.values[0] if node.values else ast.Constant("")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if isinstance(node, ast.FormattedValue) else None


def test_every_message_of_an_error_has_a_code() -> None:
    lacking = []
    for path, tree in trees("src/pffl"):
        if path.name == "_verify.py":  # imports nothing of ours
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            if last not in CODED and not name.endswith("problems.add"):
                continue
            text = first_text(node.args[0])
            if text is not None and not CODE.match(text) and text not in SENTENCES:
                lacking.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert lacking == []


def test_every_sentence_is_raised_with_its_fields() -> None:
    """What errors.toml says is said somewhere, and names what is given there."""
    raised, key_like = dict[str, list[set[str]]](), re.compile(r"[a-z0-9]+-[a-z0-9:-]+")
    for _, tree in trees("src/pffl"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args:
                key = getattr(node.args[0], "value", None)
                if isinstance(key, str) and key in SENTENCES:
                    given = {str(word.arg) for word in node.keywords}
                    raised.setdefault(key, []).append(given)
                name = ast.unparse(node.func)
                if name in OURS or name.endswith("problems.add"):
                    assert key in SENTENCES or not key_like.fullmatch(str(key)), key
    assert set(raised) == set(SENTENCES)
    for key, text in SENTENCES.items():
        named = {name for _, name, _, _ in Formatter().parse(text) if name}
        assert all(named <= given for given in raised[key]), key


def test_tests_compare_codes_of_our_errors_and_not_their_prose() -> None:
    coded = OURS - {"FederationError"}  # which quotes the reasons of sites
    frozen = tomllib.loads((ROOT / "tests" / "frozen.toml").read_text("utf-8"))
    prose = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees("tests")
        if str(path.relative_to(ROOT)) not in frozen
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "pytest.raises"
        and any(keyword.arg == "match" for keyword in node.keywords)
        and {n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)} & coded
    ]
    assert prose == []
