"""For commands that are still on their way to `options`."""

from pffl.cli.options import SPEC as SPEC
from pffl.cli.options import TYPED as TYPED
from pffl.cli.options import Draft as Draft
from pffl.cli.options import bound as bound
from pffl.cli.options import named as named
