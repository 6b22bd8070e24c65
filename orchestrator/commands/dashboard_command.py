"""`plt dashboard`"""

import os
import subprocess

import click


@click.command("dashboard")
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option("--port", default=8501, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
def command(host: str, port: int) -> int:
    """Open the dashboard of this home in the browser; only this machine can reach it unless --host says otherwise."""
    import importlib

    from orchestrator.home import Home

    launch = importlib.import_module("dashboard.launch")
    arguments, environment = launch.command(host, port, Home.from_environment())
    with subprocess.Popen(arguments, env={**os.environ, **environment}) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            server.terminate()
            server.wait()
            return 0
