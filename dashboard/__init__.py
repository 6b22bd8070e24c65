"""The Streamlit dashboard: pure frames and charts, thin views.

It reads through `orchestrator.tracking.reader` only, and acts through `orchestrator.control` and
`orchestrator.submission`.
"""
