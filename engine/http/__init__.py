"""The engine over HTTP: a thin adapter that holds no rule of the service.

    app            ASGI: one HTTP request → `engine.submit` → one HTTP answer
    pages          the service's own pages: health, metrics, documentation, OpenAPI document
    protocol       what a connection may cost: slow, endless and broken senders
    server         uvicorn, started and stopped
    system         the real world's clock and ports; `destinations` says who may be called
    configuration  what `serve --config` reads, and `demo` what `serve --demo` makes
    openapi        the documents, made from the registry of operations

Import from the modules: commands that serve nothing start without any of this.
"""
