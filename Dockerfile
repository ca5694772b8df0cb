# The server, with the demo's tenants and keys: `docker compose up`.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY engine/ engine/
COPY simulator/ simulator/
COPY conformance/ conformance/
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir ".[server]"

FROM python:3.13-slim
COPY --from=build /venv /venv
RUN useradd --system tollgate
USER tollgate
EXPOSE 8420
HEALTHCHECK --interval=10s --timeout=3s --retries=3 \
    CMD ["/venv/bin/python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8420/healthz')"]
ENTRYPOINT ["/venv/bin/tollgate-engine", "serve", "--host", "0.0.0.0", "--port", "8420"]
CMD ["--demo"]
