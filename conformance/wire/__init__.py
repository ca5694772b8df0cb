"""How requests reach a deployment: exchanges, transports, connections, pace and redaction.

`transport` is the protocol; `over_http` is real, `in_process` is an engine on virtual time.
"""
