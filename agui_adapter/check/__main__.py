"""`python -m agui_adapter.check`."""

import sys

from agui_adapter.check.cli import main

sys.exit(main())
