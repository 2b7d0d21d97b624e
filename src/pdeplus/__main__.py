"""python -m pdeplus"""

from .cli import main

main()
