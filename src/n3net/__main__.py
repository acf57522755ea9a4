"""`python -m n3net` is the command `n3net`."""

from n3net.cli import main

main()
