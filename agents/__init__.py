"""The agent system; what starts a process of it comes through here before TensorFlow is imported."""

import os

# TensorFlow leaves oneDNN off on CPUs without AVX-512. There, too, it makes an update a quarter quicker.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
