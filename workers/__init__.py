"""What runs where the hardware is: the model, its data, training, decoding and benchmarks.

Everything here but `workers.actor` works with torch, numpy and safetensors alone (byte-level BPE adds `tokenizers`), so
a GPU machine's own Python is enough. Nothing here knows of Optuna, MLflow or Streamlit.
"""
