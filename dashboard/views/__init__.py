"""One thin page per file: it lays out what the pure modules made. Streamlit runs each file as a script."""
