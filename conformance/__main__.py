# PYTHON_ARGCOMPLETE_OK
"""`python -m conformance`: the same as `tollgate-conformance`."""

import sys

from conformance.cli import main

sys.exit(main())
