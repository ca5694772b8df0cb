"""The yardstick of `bench_http`: a Starlette endpoint that parses JSON and returns it.

`python -m tests.benchmarks._bare_app` prints its port and serves until it is stopped, on the same
server, loop and parser as the service.
"""

import asyncio
import socket

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def _echo(request: Request) -> JSONResponse:
    return JSONResponse(await request.json())


def main() -> None:
    """Serve."""
    app = Starlette(routes=[Route("/tokenize", _echo, methods=["POST"])])
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(2048)  # whoever reads the port may connect at once
    print(bound.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[bound]))


if __name__ == "__main__":
    main()
