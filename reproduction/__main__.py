"""`python -m reproduction reproduce FIGURE …`, from the root of a checkout."""

from pffl.cli import main
from reproduction import extend

extend()
main()
