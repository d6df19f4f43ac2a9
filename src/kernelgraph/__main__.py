"""`python -m kernelgraph`."""

import sys

from .dsl.view.command_line import main

sys.exit(main())
