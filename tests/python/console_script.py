"""The script `nvfp4` as pip writes it: the working folder is not on the path of its modules."""

from nvfp4._cli import main

main()
