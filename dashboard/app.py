"""The dashboard's entry: four pages under one navigation bar. Started by `plt dashboard`, see `dashboard.launch`.

Limits: it reads and never runs anything; long work has no place in a page.
"""

from pathlib import Path

import streamlit as st

_VIEWS = Path(__file__).parent / "views"


def main() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="PLT orchestrator", page_icon=":material/all_inclusive:", layout="wide")
    pages = [
        st.Page(_VIEWS / "studies.py", title="Studies", icon=":material/science:", url_path="studies", default=True),
        st.Page(_VIEWS / "trade_offs.py", title="Trade-offs", icon=":material/scatter_plot:", url_path="trade-offs"),
        st.Page(_VIEWS / "compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page(_VIEWS / "trial.py", title="Trial", icon=":material/labs:", url_path="trial"),
    ]
    st.navigation(pages, position="top").run()


main()
