"""A site's side of Flower: a ClientApp that answers queries.

Flower starts a new process for every message, so the rows are opened each time: from
the folder that `pffl site prepare` wrote (memory-mapped), or by a function of the
user's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from pffl.data.partition import split_rows
from pffl.data.schema import Schema
from pffl.data.silo import Rows, Silo
from pffl.errors import PFFLError, UsageError
from pffl.flower.message import OWN_TYPES, unwrap, wrap
from pffl.flower.weights import PARTITION, name_of
from pffl.processors import blas_threads, processors
from pffl.queries import Query
from pffl.queries.base import Rebuild
from pffl.site import Rules, Site
from pffl.wire.envelope import HELLO, SEVERAL

Arrays: TypeAlias = tuple[Any, Any, Any]
Opener: TypeAlias = Callable[[Context], Silo | Arrays | Site]
TEST_FRACTION = 0.2


class Unanswered(RuntimeError):
    """A site that could not be opened; says nothing of why to the outside."""


def client_app(
    rows: Opener | None = None,
    *,
    schema: Schema | None = None,
    rules: Rules | None = None,
    test_fraction: float = TEST_FRACTION,
    own_model: Rebuild | None = None,
) -> ClientApp:
    """Make the ClientApp of a site.

    Parameters
    ----------
    rows
        None: open the prepared folder that the SuperNode's ``--node-config`` names,
        ``site="…"``. Or a function from Flower's Context to a `Silo`, or to arrays
        (X, y, group) with label and group codes of the schema; then the node's
        configuration holds the site's name, ``silo="…"``, and ``state="…"``, a folder
        in which the site remembers what it has answered. In Flower's simulation a
        node has its ``partition-id`` instead: it is then the site "partition 0", and
        remembers for this run only. Or to a `Site`.
    schema
        What the sites agree on; only with `rows`.
    rules
        What the site refuses; only with `rows` (a folder has its own in site.toml).
    test_fraction
        Share of arrays that is kept for testing, drawn alike each time.
    own_model
        Rebuilds models with a module of the user's own; see `read_query`.
    """
    if rows is not None and schema is None:
        raise UsageError("[needs-schema] client_app: rows of your own need a schema")
    app = ClientApp()

    def opened(context: Context) -> Site:
        if rows is None or schema is None:
            return Site.open(_named(context, "site"))
        found = rows(context)
        if isinstance(found, Site):
            return found
        silo = _silo(found, context, test_fraction)
        return Site(silo, schema, rules or Rules(), _state(context))

    def answer(message: Message, context: Context) -> Message:
        try:
            site = opened(context)
            site.own_model = own_model or site.own_model
        except PFFLError as error:
            print(f"pffl: the site cannot be opened: {error}", flush=True)
            raise Unanswered(type(error).__name__) from None
        except Exception as error:  # its text may hold data
            raise Unanswered(type(error).__name__) from None
        content = unwrap(message)
        with blas_threads(processors()):
            answer = site.answer(content or b"")
        return Message(wrap(answer), reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    for kind in (*Query.kinds, SEVERAL, HELLO):
        if kind not in OWN_TYPES:
            app.query(kind)(answer)
    return app


def _silo(given: Silo | Arrays, context: Context, test_fraction: float) -> Silo:
    if isinstance(given, Silo):
        return given
    whole = Rows.of(*given)
    fractions = {"test": test_fraction} if test_fraction else {}
    splits = split_rows(whole, fractions, np.random.default_rng(0))
    name = name_of(context)
    return Silo(_named(context, "silo") if name is None else name, 0, splits)


def _state(context: Context) -> Path:
    """Return where a site remembers what it answered; in a simulation, for this run."""
    partition = context.node_config.get(PARTITION)
    if "state" in context.node_config or partition is None:
        return Path(_named(context, "state"))
    run = f"pffl-simulation-{context.run_id}"
    place = Path(tempfile.gettempdir()) / run / f"partition-{partition}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _named(context: Context, key: str) -> str:
    value = context.node_config.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(
            f'[missing-node-config] the SuperNode\'s --node-config must hold {key}="…"'
        )
    return value
