"""Who may look and who may act: the read-only mode, and the optional sign-in.

`plt dashboard --read-only` sets a variable of the server's environment: pages then offer nothing that changes a study,
and every action refuses (`require_writable`), whatever a browser sends. Sign-in is Streamlit's own OpenID Connect: it
is asked for when the server's `.streamlit/secrets.toml` has an `[auth]` section, and needs the extra `sign-in`.
"""

import os

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from orchestrator.errors import StudyError

READ_ONLY = "PLT_DASHBOARD_READ_ONLY"
"""The variable; `1` means read-only."""


def read_only() -> bool:
    """Whether this server only shows."""
    return os.environ.get(READ_ONLY) == "1"


def require_writable() -> None:
    """Raise a `StudyError` when this server only shows."""
    if read_only():
        raise StudyError("this dashboard is read-only; act from a terminal, or start one without --read-only")


def sign_in_configured() -> bool:
    """Whether the server's secrets name an identity provider."""
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:
        return False


def require_sign_in() -> None:
    """Where sign-in is configured, show nothing but its button to who is not signed in."""
    if not sign_in_configured() or st.user.is_logged_in:
        return
    st.title("PLT orchestrator")
    st.write("Sign in to see the studies of this home.")
    st.button("Sign in", on_click=st.login, type="primary", icon=":material/login:")
    st.stop()


def show_account() -> None:
    """Who is signed in, and how to leave; nothing without sign-in."""
    if sign_in_configured():
        st.sidebar.caption(str(st.user.get("email") or st.user.get("name") or "signed in"))
        st.sidebar.button("Sign out", on_click=st.logout, icon=":material/logout:")
