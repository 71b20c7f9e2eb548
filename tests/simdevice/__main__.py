"""``python -m tests.simdevice MODULE FUNCTION JSON_ARGS``: the other end of ``simdevice.run``."""

import importlib
import json
import sys

from . import load

module, function, args = sys.argv[1:]
load()
print(json.dumps(getattr(importlib.import_module(module), function)(*json.loads(args))))
