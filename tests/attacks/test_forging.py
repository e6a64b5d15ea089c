"""Nobody answers in a site's name: what is not signed with its key is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pffl.errors import FederationError
from pffl.queries import Census
from pffl.wire import Policy, read_answer, signed_content, write_answer
from tests.attacks.askers import tell
from tests.engines.sites import PlainSite
from tests.helpers import make_federation
from tests.inside import InMemory, Remote, SiteKeys
from tests.site.secure import agree, keys_of, sites_of

QUICK = Policy(seconds=2.0, join_seconds=0.2, retries=0)
HONEST = make_federation(1)
NAME = HONEST.silo_names[0]
MADE_UP = PlainSite(make_federation(2).silos[0], HONEST.schema)  # rows of the forger


def unsigned(content: bytes) -> bytes:
    """An answer from made-up rows."""
    return MADE_UP(content)


def with_a_key_of_ones_own(content: bytes) -> bytes:
    """The same, signed by whoever made it."""
    return signed(MADE_UP(content), SiteKeys.generate())


def signed(content: bytes, keys: SiteKeys) -> bytes:
    answer = read_answer(content)
    signature = keys.sign(signed_content(answer))
    return write_answer(replace(answer, signature=signature))


def under_a_true_signature(content: bytes) -> bytes:
    """The same, with the signature of what the site itself answers."""
    true = read_answer(SITES[NAME].answer(content))
    forged = read_answer(MADE_UP(content))
    return write_answer(replace(forged, signature=true.signature))


def of_a_colleague(content: bytes) -> bytes:
    """Another site of the federation answers in this one's name."""
    return signed(MADE_UP(content), keys_of(HONEST.silo_names[1]))


SITES = sites_of(HONEST, agree(HONEST, secure_sum=False))


def believed(first: Callable[[bytes], bytes], *, keys: bool) -> Any:
    """What the server believes that the sites' inputs add up to."""
    answer: dict[str, Callable[[bytes], bytes]]
    answer = {name: site.answer for name, site in SITES.items()}
    answer[NAME] = first
    known = {name: keys_of(name).public for name in HONEST.silo_names}
    engine = Remote(
        InMemory(answer),
        HONEST.schema,
        HONEST.silo_names,
        policy=QUICK,
        keys=known if keys else None,
    )
    return engine.ask(Census(HONEST.schema)).feature_sums


@pytest.mark.parametrize(
    "forged", [unsigned, with_a_key_of_ones_own, under_a_true_signature, of_a_colleague]
)
def test_forged_answers(forged: Callable[[bytes], bytes]) -> None:
    honest = believed(SITES[NAME].answer, keys=True)
    assert (believed(forged, keys=False) != honest).any()  # version 0.1.0 took it
    with pytest.raises(FederationError, match="not signed with the site's key"):
        believed(forged, keys=True)
    tell(f"forged answer, {forged.__name__.replace('_', ' ')}", "admitted", "refused")
