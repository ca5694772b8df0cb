"""Traffic: random streams, draws, arrivals, populations, clients; and access logs to replay."""
