"""One module per command; heavy imports happen inside the functions."""
