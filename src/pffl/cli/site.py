"""`pffl site`: what a site of a deployed federation prepares, and what leaves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pffl.cli import console
from pffl.cli.options import COLUMNS, Draft, open_data, takes

if TYPE_CHECKING:
    from pffl.parcel import Parcel
    from pffl.site import SiteConfig
    from pffl.site.prepare import Summary

app = typer.Typer(no_args_is_help=True, help="Prepare a site, and see what leaves it.")
File = Annotated[
    Path, typer.Argument(metavar="SITE", help="A site.toml, or the folder of one.")
]
CENSUS = "census"


@app.command()
def prepare(path: File) -> None:
    """Read, check and split the rows once, and show what will be answered.

    Example: pffl site prepare site.toml
    """
    from pffl.site import SiteConfig
    from pffl.site import prepare as prepare_rows

    config = SiteConfig.load(path)
    summary = prepare_rows(config)
    for note in summary.notes:
        console.note(note)
    _show(summary)
    console.show(f"Ready in {config.prepared}")


@app.command()
def answer(
    path: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: nothing is sent from here.")
    ] = False,
    query: Annotated[
        str,
        typer.Option(
            help="File with a message of a server, or 'census' (under secure sums, "
            "what comes first: a key of the run)."
        ),
    ] = CENSUS,
    split: Annotated[str, typer.Option(help="Which rows the census is of.")] = "train",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with the bytes.")
    ] = False,
) -> None:
    """Print exactly the bytes that would leave the site, and remember nothing.

    Example: pffl site answer site.toml --dry-run
    """
    from pffl.errors import UsageError
    from pffl.files import read
    from pffl.site import Site, SiteConfig

    if not dry_run:
        raise UsageError(
            "[options-conflict] answers are sent by the site's Flower node "
            "(start.sh); give --dry-run to see what would leave"
        )
    config = SiteConfig.load(path)
    site = Site.configured(config)
    asked = _first(config, split) if query == CENSUS else read(Path(query))
    content = site.preview(asked)
    if json:
        console.print_json(_plain(content))
    else:
        _dump(content)


@app.command()
@takes(*COLUMNS)
def describe(
    draft: Draft,
    sites: Annotated[
        str, typer.Option(help="Names of the sites, with commas between them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write it.")] = Path(
        "federation.json"
    ),
) -> None:
    """Write federation.json from a table that looks like the sites' (made-up rows do).

    It holds names of columns, groups, labels and sites, and no rows.

    Example: pffl site describe sample.csv --label sick --group sex --sites a,b
    """
    from pffl.files import write
    from pffl.flower.deploy import site_names
    from pffl.site import Agreement

    data = dict(draft.sections.get("data", {}))
    if "path" in data and "silo" not in data:
        data.setdefault("silos", 1)
    spec = replace(draft, sections={**draft.sections, "data": data}).check()
    agreed = Agreement.of(open_data(spec.data), site_names(sites))
    write(out, agreed.text().encode())
    console.show(
        f"{out}: {len(agreed.schema.features):,} inputs, {len(agreed.schema.groups)} "
        f"groups, sites {', '.join(agreed.sites)}"
    )


def _show(summary: Summary) -> None:
    """Show the site's own counts; withheld ones are marked."""
    from rich.text import Text

    from pffl.cli.show import LONGEST_NAME, name, plain_table, print_whole
    from pffl.text import visible

    target, schema = console.stdout(), summary.site.schema
    table = plain_table(target.width)
    table.add_column("rows", overflow="fold")
    for split in summary.counts:
        table.add_column(split, justify="right")
    for atom in range(schema.n_atoms):
        cells = [
            f"{counts[atom]:,}{' withheld' if summary.hidden[split][atom] else ''}"
            for split, counts in summary.counts.items()
        ]
        table.add_row(name(schema.atom_name(atom), 2 * LONGEST_NAME), *cells)
    table.add_section()
    table.add_row("all", *(f"{counts.sum():,}" for counts in summary.counts.values()))
    title = f"site '{visible(summary.site.name)}', for your eyes only"
    target.print(Text(title, style="bold"), soft_wrap=True)
    print_whole(target, table)
    floor = summary.site.rules.floor
    if any(hidden.any() for hidden in summary.hidden.values()):
        target.print(
            f"Withheld: fewer than {floor} rows, or needed to hide those. They are "
            "left out of everything that is answered, and train nothing.",
            soft_wrap=True,
        )


def _first(config: SiteConfig, split: str) -> bytes:
    """Return what a server asks: the census, or under secure sums who is there."""
    from importlib.metadata import version

    from pffl.errors import UsageError
    from pffl.queries import Census
    from pffl.wire import Request, query_body, write_request

    agreed = config.agreement()
    if "privacy" in agreed.run:
        raise UsageError(
            "[not-under-noise] the agreed run releases everything with noise, which "
            "is drawn once and charged: nothing of it is shown beforehand (pffl site "
            "show says what)"
        )
    census = query_body(Census(agreed.schema, split), 0)
    known = ("dry run", 0, 0, version("pffl"), agreed.schema.hash)
    return write_request(Request(*known, () if agreed.secure_sum else (census,)))


def _opened(content: bytes) -> tuple[str, Parcel]:
    from pffl import files
    from pffl.parcel import unpack

    return files.digest(content), unpack(content)


def _plain(content: bytes) -> dict[str, object]:
    digest, parcel = _opened(content)
    return {
        "size": len(content),
        "sha256": digest,
        "header": dict(parcel.header),
        "arrays": {name: array.tolist() for name, array in parcel.arrays.items()},
        "bytes": content.hex(),
    }


def _dump(content: bytes) -> None:
    """Print what the message says, and then the message itself."""
    from pffl.text import visible

    digest, parcel = _opened(content)
    lines = [f"{len(content):,} bytes would leave, sha256 {digest}", "", "header"]
    lines += [f"  {name}: {value!r}" for name, value in parcel.header.items()]
    for name, array in parcel.arrays.items():
        lines += ["", f"{name} {array.dtype}{list(array.shape)}"]
        wide = array.shape[-1] if array.ndim and array.size else 1
        rows = array.reshape(-1, wide)
        lines += [f"  {' '.join(f'{value:.17g}' for value in row)}" for row in rows]
    lines += ["", "bytes"]
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {shown}")
    for line in lines:
        typer.echo(visible(line))
