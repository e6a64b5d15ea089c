"""A site of a deployed federation: its rows, its rules, and all that ever leaves it."""

from pffl.site.agreement import Agreement as Agreement
from pffl.site.answer import Site as Site
from pffl.site.config import Rules as Rules
from pffl.site.config import SiteConfig as SiteConfig
from pffl.site.prepare import prepare as prepare
