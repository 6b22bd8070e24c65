"""The dashboard's entry: four pages under one navigation bar. Started by `plt dashboard`, see `dashboard.launch`.

Limits: it reads and never runs anything; long work has no place in a page.
"""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent


def main() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="PLT orchestrator", page_icon=str(_HERE / "icon.svg"), layout="wide")
    st.logo(str(_HERE / "icon.svg"), size="small")
    views = _HERE / "views"
    pages = [
        st.Page(views / "studies.py", title="Studies", icon=":material/science:", default=True),
        st.Page(views / "trade_offs.py", title="Trade-offs", icon=":material/scatter_plot:", url_path="trade-offs"),
        st.Page(views / "compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page(views / "trial.py", title="Trial", icon=":material/labs:", url_path="trial"),
    ]
    st.navigation(pages, position="top").run()


main()
