"""Before training: what a promise for people not seen will about need."""

from __future__ import annotations

from pffl.planning.promised import PromisePlan, plan

__all__ = ["PromisePlan", "plan"]
