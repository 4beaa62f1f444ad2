import sys

from kernloom.cli import main

sys.exit(main())
