"""What runs beside PyTorch and JAX, in .venv-rivals and without TensorFlow: `make test-adopting`."""
