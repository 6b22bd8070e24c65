"""`plt dashboard`"""

import os
import subprocess

import click


@click.command("dashboard")
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option("--port", default=8501, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--read-only", is_flag=True, help="Show everything, change nothing: for sharing.")
@click.option("--ray-dashboard", metavar="URL", help="Show this Ray cluster's nodes and actors, http://HEAD:8265.")
def command(host: str, port: int, read_only: bool, ray_dashboard: str | None) -> int:
    """Open the dashboard of this home in the browser; only this machine can reach it unless --host says otherwise.

    With an [auth] section in .streamlit/secrets.toml people must sign in (OpenID Connect; needs the extra sign-in).
    """
    import importlib

    from orchestrator.home import Home

    launch = importlib.import_module("dashboard.launch")
    arguments, environment = launch.command(
        host, port, Home.from_environment(), read_only=read_only, ray_dashboard=ray_dashboard
    )
    with subprocess.Popen(arguments, env={**os.environ, **environment}) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            server.terminate()
            server.wait()
            return 0
