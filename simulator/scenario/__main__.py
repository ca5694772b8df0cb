"""`python -m simulator.scenario` prints the JSON Schema that ships as `scenario.schema.json`."""

import json
import sys

from simulator.scenario import schema

sys.stdout.write(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
