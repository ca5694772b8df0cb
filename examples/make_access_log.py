"""Write access.log: the first 2,000 requests of the scenario `launch-day`, as a server logs them.

    python examples/make_access_log.py > examples/access.log

Statuses are those of the limits: 429 for a refused request, 200 otherwise.
"""

import pandas as pd

import simulator

LINES = 2_000


def access_log() -> str:
    """Return the log, in the combined format with the key's label after the user agent."""
    result = simulator.run("launch-day", fidelity="limits")
    start = pd.Timestamp(result.summary["start_time"])
    rows = result.requests.head(LINES)
    times = (start + pd.to_timedelta(rows["t_ns"], unit="ns")).dt.strftime("%d/%b/%Y:%H:%M:%S %z")
    statuses = rows["outcome"].map({"admitted": 200}).fillna(429).astype(int)
    keys = rows["key"].str.replace("-", "_")
    columns = (rows["ip"], rows["method"], rows["path"], keys)
    return "".join(
        f'{ip} - - [{time}] "{method} {path} HTTP/1.1" {status} - "-" "-" "{key}"\n'
        for time, status, ip, method, path, key in zip(times, statuses, *columns, strict=True)
    )


if __name__ == "__main__":
    print(access_log(), end="")
