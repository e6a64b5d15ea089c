"""Find code that could run what it reads, by looking at the syntax tree.

A search for words would also find `model.eval()` and the sentence "no pickle".
"""

from __future__ import annotations

import ast

MODULES = {"cPickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "os.popen",
    "os.system",
    "pandas.read_pickle",
    "torch.load",
    "yaml.full_load",
    "yaml.load",
    "yaml.unsafe_load",
}
METHODS = {"read_pickle", "to_pickle"}
LOADERS = {"numpy.load"}
ALIASES = {"np": "numpy", "pd": "pandas"}


def unsafe(source: str) -> list[str]:
    """Every unsafe use in `source`, as 'line: what'."""
    tree = ast.parse(source)
    names = _imported_names(tree)
    found = [
        (node.lineno, what)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        for what in _complaints(node, names)
    ]
    return [f"{line}: {what}" for line, what in sorted(found)]


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name → dotted name, for `import a.b as c` and `from a import b as c`."""
    names = dict(ALIASES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _complaints(
    node: ast.Import | ast.ImportFrom | ast.Call, names: dict[str, str]
) -> list[str]:
    if isinstance(node, ast.Import):
        return [f"import {a.name}" for a in node.names if _root(a.name) in MODULES]
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [f"from {module} import"] if _root(module) in MODULES else []
    return _complaints_of_call(node, names)


def _complaints_of_call(node: ast.Call, names: dict[str, str]) -> list[str]:
    called = _dotted(node.func, names)
    options = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
    found = []
    if called in BUILTINS or called in CALLS or called.rpartition(".")[2] in METHODS:
        found.append(f"{called}(…)")
    if called in LOADERS and options.get("allow_pickle") != "False":
        found.append(f"{called}(…) without allow_pickle=False")
    elif options.get("allow_pickle", "False") != "False":
        found.append(f"{called}(…, allow_pickle={options['allow_pickle']})")
    if options.get("shell", "False") != "False":
        found.append(f"{called}(…, shell={options['shell']})")
    return found


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`np.load` → 'numpy.load'; '?' stands for anything that is not a name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _root(module: str) -> str:
    return module.partition(".")[0]
