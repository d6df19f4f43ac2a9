"""`python -m kernelgraph`."""

import sys

from .dsl.inspection.command_line import main

sys.exit(main())
