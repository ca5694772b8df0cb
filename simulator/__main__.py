# PYTHON_ARGCOMPLETE_OK
"""`python -m simulator`: the simulator's commands."""

from simulator.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
