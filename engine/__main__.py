# PYTHON_ARGCOMPLETE_OK
"""`python -m engine`."""

from engine.cli import main

raise SystemExit(main())
