"""The commands of ``ksched``, one module each: flags in, a call to the code that does the work.

A module has ``add_parser(commands, summary)``, which adds its parser and sets ``execute`` to a
function from the parsed arguments to the exit code. ``ksched.cli`` lists the modules and loads one.

Does not belong here: logic that could be called from elsewhere.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
