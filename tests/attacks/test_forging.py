"""Nobody answers in a site's name: what is not signed with its key is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pffl.deploy import SiteKey
from pffl.errors import FederationError
from pffl.queries import Census, Policy
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
HONEST, FORGED = make_federation(1), make_federation(2)
NAME, COLLEAGUE = HONEST.silo_names[:2]
AGREED = agree(HONEST, secure_sum=False)
BARE = replace(AGREED, keys={})  # as before sites had keys


def forging(how: str) -> Any:
    """Somebody who answers in a site's name, from rows of one's own."""
    true, forger = sites_of(HONEST, AGREED)[NAME], sites_of(FORGED, BARE)[NAME]

    def answer(content: bytes) -> bytes:
        hello = replace(read_request(content), step=0, bodies=())
        forger.answer(write_request(hello))
        found = read_answer(forger.answer(content))
        if how == "where nobody signs":
            return write_answer(found)
        if not found.step:
            found = replace(found, transcript=first_transcript(AGREED.hash, found.run))
        if how == "under a true signature":
            signature = read_answer(true.answer(content)).signature
            return write_answer(replace(found, signature=signature))
        keys = {"with a key of one's own": SiteKey.generate()}
        keys["of a colleague"] = keys_of(COLLEAGUE)
        signature = keys[how].sign(signed_content(found)) if how in keys else ""
        return write_answer(replace(found, signature=signature))

    return SimpleNamespace(answer=answer)


def believed(how: str, agreed: Any = AGREED) -> Any:
    """What the server believes that the sites' inputs add up to."""
    sites: dict[str, Any] = sites_of(HONEST, agreed)
    if how:
        sites[NAME] = forging(how)
    return engine_of(sites, agreed, policy=QUICK).ask(Census(HONEST.schema))


HOW = ("unsigned", "with a key of one's own", "under a true signature")


@pytest.mark.parametrize("how", [*HOW, "of a colleague"])
def test_forged_answers(how: str) -> None:
    honest = believed("").feature_sums
    if how == "unsigned":  # without keys it is taken
        assert (believed("where nobody signs", BARE).feature_sums != honest).any()
    with pytest.raises(FederationError, match="not signed with the site's key"):
        believed(how)
