"""The Streamlit dashboard: pure frames and charts, thin views. Reads through `orchestrator.tracking.reader` only."""
