"""`python -m simulator.logs` prints the JSON Schema of the map file, as it is shipped."""

import json

from simulator.logs import map_schema

if __name__ == "__main__":
    print(json.dumps(map_schema(), indent=2, ensure_ascii=False))  # reason: its answer
