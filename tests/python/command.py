"""The command that tests start."""

import os
import sys
from pathlib import Path

#: That of the package.
SCRIPT = [sys.executable, str(Path(__file__).with_name("console_script.py"))]
#: That of the build, or else that of the package.
COMMAND = [os.environ["NVFP4_COMMAND"]] if "NVFP4_COMMAND" in os.environ else SCRIPT
