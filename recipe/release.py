"""Build a release: wheel, sdist, bill of materials, hashes.

    python recipe/release.py --out dist

The wheel and the sdist are built by hatchling in an environment of their own. What an
installation of the wheel brings is resolved anew in a second one, and written down as a
CycloneDX bill of materials; SHA256SUMS has the hashes of all three files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import uuid
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
RELATIVE = re.compile(r"\]\((?!https?:|#)[^)]*\)")
ASK = """
import json
from importlib.metadata import distributions
print(json.dumps([
    [d.metadata["Name"], d.version, d.metadata.get("License-Expression")
     or d.metadata.get("License") or "",
     [c for c in d.metadata.get_all("Classifier", []) if c.startswith("License")]]
    for d in distributions()
]))
"""


def run(*command: object, place: Path | None = None) -> str:
    """Run a command to its end; its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=place,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:6]))} … ended with {done.returncode}")
    return done.stdout


def environment(place: Path, *wanted: object) -> Path:
    """Make an environment; its Python."""
    run(sys.executable, "-m", "venv", place)
    own = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    quiet = ("-q", "--no-compile", "--disable-pip-version-check")
    run(own, "-m", "pip", "install", *quiet, *wanted)
    return own


def build(out: Path, scratch: Path) -> tuple[Path, Path]:
    """Build both; the wheel and the sdist."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pins = ("-c", ROOT / "constraints.txt")
    own = environment(scratch / "build", *pins, *settings["build-system"]["requires"])
    run(own, "-m", "hatchling", "build", "-d", out, place=ROOT)
    version = settings["project"]["version"]
    return out / f"pffl-{version}-py3-none-any.whl", out / f"pffl-{version}.tar.gz"


def metadata(wheel: Path) -> Any:
    """What the index will show."""
    with ZipFile(wheel) as files:
        (name,) = [n for n in files.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(files.read(name).decode())


def bill(wheel: Path, scratch: Path) -> dict[str, Any]:
    """Everything that `pip install pffl` brings, as CycloneDX 1.6."""
    own = environment(scratch / "installed", wheel)
    found = sorted(json.loads(run(own, "-c", ASK)), key=lambda one: one[0].lower())
    tools = {"pip", "setuptools", "wheel"}  # of the environment
    parts = [component(*one) for one in found if one[0].lower() not in tools]
    (mine,) = [part for part in parts if part["name"] == "pffl"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    mine["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"component": mine},
        "components": [part for part in parts if part is not mine],
        "dependencies": [
            {
                "ref": mine["bom-ref"],
                "dependsOn": [p["bom-ref"] for p in parts if p is not mine],
            }
        ],
    }


def component(
    name: str, version: str, licence: str, classifiers: list[str]
) -> dict[str, Any]:
    """One package."""
    known = re.sub(r"[-_.]+", "-", name).lower()
    short = licence if licence and "\n" not in licence and len(licence) < 80 else ""
    words = short or "; ".join(c.rpartition(" :: ")[2] for c in classifiers)
    reference = f"pkg:pypi/{known}@{version}"
    out: dict[str, Any] = {"type": "library", "name": known, "version": version}
    out |= {"purl": reference, "bom-ref": reference}
    return out | ({"licenses": [{"license": {"name": words}}]} if words else {})


def main() -> None:
    """Build, write down, hash."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty")
    with tempfile.TemporaryDirectory(prefix="pffl-release-") as folder:
        scratch = Path(folder)
        wheel, sdist = build(out, scratch)
        told = metadata(wheel)
        dead = RELATIVE.findall(told.get_payload())
        if dead:
            sys.exit(f"the index page would have dead links: {dead}")
        made = bill(wheel, scratch)
    listed = out / f"pffl-{told['Version']}.cdx.json"
    listed.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    files = (wheel, sdist, listed)
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files]
    (out / "SHA256SUMS").write_text("".join(sums), "utf-8")
    for file in files:
        print(f"{file.stat().st_size:>10,}  {file.name}")
    print(f"{len(made['components'])} packages besides pffl in an installation")


if __name__ == "__main__":
    main()
