"""python -m heddle: the program."""

from heddle._program import main

main()
