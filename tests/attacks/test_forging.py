"""Nobody answers in a site's name: what is not signed with its key is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pffl.deploy import SiteKey
from pffl.errors import FederationError
from pffl.queries import Census, Policy
from tests.attacks.askers import tell
from tests.deploy.sites import agree, engine_of, keys_of, sites_of
from tests.helpers import make_federation
from tests.inside import (
    first_transcript,
    read_answer,
    read_request,
    signed_content,
    write_answer,
    write_request,
)

QUICK = Policy(seconds=2.0, join_seconds=0.2, retries=0)
HONEST = make_federation(1)
NAME = HONEST.silo_names[0]
AGREED = agree(HONEST, secure_sum=False)
BARE = replace(AGREED, keys={})  # as before sites had keys


def made_up(content: bytes) -> bytes:
    """An answer from rows of the forger's own, not signed."""
    forger = sites_of(make_federation(2), BARE)[NAME]
    hello = replace(read_request(content), step=0, bodies=())
    forger.answer(write_request(hello))
    answer = read_answer(forger.answer(content))
    said = first_transcript(AGREED.hash, answer.run) if not answer.step else ""
    return write_answer(replace(answer, transcript=said or answer.transcript))


def unsigned(content: bytes) -> bytes:
    """An answer from made-up rows."""
    return made_up(content)


def unkeyed(content: bytes) -> bytes:
    """The same, where nobody signs."""
    forger = sites_of(make_federation(2), BARE)[NAME]
    hello = replace(read_request(content), step=0, bodies=())
    forger.answer(write_request(hello))
    return forger.answer(content)


def with_a_key_of_ones_own(content: bytes) -> bytes:
    """The same, signed by whoever made it."""
    return signed(made_up(content), SiteKey.generate())


def signed(content: bytes, keys: SiteKey) -> bytes:
    answer = read_answer(content)
    signature = keys.sign(signed_content(answer))
    return write_answer(replace(answer, signature=signature))


def under_a_true_signature(content: bytes) -> bytes:
    """The same, with the signature of what the site itself answers."""
    true = read_answer(SITES[NAME].answer(content))
    forged = read_answer(made_up(content))
    return write_answer(replace(forged, signature=true.signature))


def of_a_colleague(content: bytes) -> bytes:
    """Another site of the federation answers in this one's name."""
    return signed(made_up(content), keys_of(HONEST.silo_names[1]))


def believed(forged: Callable[[bytes], bytes] | None, *, keys: bool) -> Any:
    """What the server believes that the sites' inputs add up to."""
    agreed = AGREED if keys else BARE
    sites: dict[str, Any] = sites_of(HONEST, agreed)
    SITES.update(sites_of(HONEST, AGREED))
    if forged is not None:
        sites[NAME] = SimpleNamespace(answer=forged)
    engine = engine_of(sites, agreed, policy=QUICK)
    return engine.ask(Census(HONEST.schema)).feature_sums


SITES: dict[str, Any] = {}


@pytest.mark.parametrize(
    "forged", [unsigned, with_a_key_of_ones_own, under_a_true_signature, of_a_colleague]
)
def test_forged_answers(forged: Callable[[bytes], bytes]) -> None:
    honest = believed(None, keys=True)
    if forged is unsigned:  # without keys it is taken
        assert (believed(unkeyed, keys=False) != honest).any()
    with pytest.raises(FederationError, match="not signed with the site's key"):
        believed(forged, keys=True)
    tell(f"forged answer, {forged.__name__.replace('_', ' ')}", "admitted", "refused")
