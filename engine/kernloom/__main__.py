import gc
import sys

# Importing makes many objects and no garbage; collecting meanwhile costs a fifth of the start.
gc.disable()

from kernloom.cli import main  # noqa: E402

sys.exit(main())
