"""How the dashboard is started: the command line of `streamlit run`, its theme and its environment.

The theme travels as flags, because an installed package has no project folder whose `.streamlit/config.toml` would be
read. Light or dark is the reader's choice, in the page's menu or by their system.
"""

import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from dashboard import access, palette
from dashboard.housekeeping import ARENAS
from orchestrator.errors import ServiceError
from orchestrator.home import Home

_THEME: Mapping[str, str | tuple[str, ...]] = {
    "theme.light.primaryColor": palette.BLUE,
    "theme.light.linkColor": palette.BLUE,
    "theme.light.backgroundColor": "#FFFFFF",
    "theme.light.secondaryBackgroundColor": "#F3F5F8",
    "theme.light.textColor": "#1B2330",
    "theme.dark.primaryColor": palette.SKY,
    "theme.dark.linkColor": palette.SKY,
    "theme.dark.backgroundColor": "#12161D",
    "theme.dark.secondaryBackgroundColor": "#1C222C",
    "theme.dark.textColor": "#E4E8EE",
    "theme.baseRadius": "small",
    "theme.showWidgetBorder": "true",
    "theme.headingFontSizes": ("1.9rem", "1.5rem", "1.2rem", "1.1rem", "1rem", "1rem"),
}


RAY_DASHBOARD = "PLT_RAY_DASHBOARD"
"""The variable that names a Ray cluster's dashboard, for the Cluster page."""


def command(
    host: str, port: int, home: Home, *, read_only: bool = False, ray_dashboard: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """The arguments to run, and the variables to add to the environment.

    Raises:
        ServiceError: The port is in use, or the host is none of this machine's.
    """
    _refuse_busy(host, port)
    flags: dict[str, str | tuple[str, ...]] = {
        "server.address": host,
        "server.port": str(port),
        "server.fileWatcherType": "none",
        "runner.magicEnabled": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        **_THEME,
    }
    arguments = [sys.executable, "-m", "streamlit", "run", str(Path(__file__).with_name("app.py"))]
    for name, value in flags.items():
        for one in (value,) if isinstance(value, str) else value:
            arguments += [f"--{name}", one]
    environment = {"PLT_HOME": str(home.root), access.READ_ONLY: "1" if read_only else "0", **ARENAS}
    return arguments, environment | ({RAY_DASHBOARD: ray_dashboard} if ray_dashboard else {})


def _refuse_busy(host: str, port: int) -> None:
    """Try to listen where the dashboard will."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise ServiceError(
            f"the dashboard cannot listen on {host}:{port} ({error.strerror}); choose another with --port, "
            "or stop what listens there"
        ) from None
