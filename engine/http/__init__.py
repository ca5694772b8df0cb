"""The engine over HTTP: a thin adapter that holds no rule of the service.

    app            ASGI: one HTTP request → `Engine.submit` → one HTTP answer
    pages          the service's own pages: health, metrics, documentation, OpenAPI document
    protocol       bounds on a connection: slow, endless and malformed requests
    requests       header fields, bodies and client addresses
    server         uvicorn, started and stopped
    system         the real world's clock and ports, and who may be called
    configuration  what `serve --config` reads, and `demo` what `serve --demo` makes
    openapi        the documents, made from the registry of operations

Import from the modules, so that commands that do not serve load none of this.
"""
