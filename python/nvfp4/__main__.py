"""`python -m nvfp4`: the command of the package."""

from ._cli import main

main()
