"""What is measured: held-out accuracy of a model, decode latency and KV memory of an architecture, and on what
hardware."""
