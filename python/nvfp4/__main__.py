"""`python -m nvfp4`: the command of the package."""

import os
import sys

# `python -m` puts the working folder first, whose code must not run.
if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath("."):
    del sys.path[0]

from ._cli import main  # noqa: E402

main()
