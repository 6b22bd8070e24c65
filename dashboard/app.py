"""The dashboard's entry: the pages under one navigation bar. Started by `plt dashboard`, see `dashboard.launch`.

Limits: it reads, asks drivers and starts them; long work has no place in a page.
"""

import gc
from pathlib import Path

import streamlit as st

from dashboard import access
from dashboard.housekeeping import keep_tidy

_HERE = Path(__file__).parent
_STYLE = _HERE / "style.css"
_PAGES = (
    ("studies", "Studies", "science"),
    ("submit", "Submit", "add_circle"),
    ("study", "Study", "monitoring"),
    ("trade_offs", "Trade-offs", "scatter_plot"),
    ("compare", "Compare", "compare_arrows"),
    ("loops", "Loops", "autorenew"),
    ("search", "Search", "manage_search"),
    ("trial", "Trial", "labs"),
    ("cluster", "Cluster", "dns"),
)  # file, title and icon


_GARBAGE = 100_000
"""New objects between two searches for cycles: a large study is millions of objects without any."""


@st.cache_resource(show_spinner=False)
def _tidied() -> object:
    """Once per process."""
    return keep_tidy()


def main() -> None:
    """Show the page that the address names."""
    gc.set_threshold(_GARBAGE)
    _tidied()
    st.set_page_config(page_title="PLT orchestrator", page_icon=str(_HERE / "icon.svg"), layout="wide")
    st.logo(str(_HERE / "icon.svg"), size="small")
    st.html(_STYLE)
    access.require_sign_in()
    pages = [
        st.Page(
            _HERE / "views" / f"{name}.py",
            title=title,
            icon=f":material/{icon}:",
            url_path=None if name == "studies" else name.replace("_", "-"),
            default=name == "studies",
        )
        for name, title, icon in _PAGES
        if not (name == "submit" and access.read_only())
    ]
    page = st.navigation(pages, position="top")
    access.show_account()
    page.run()


main()
