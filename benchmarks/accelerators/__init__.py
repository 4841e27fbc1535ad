"""Compiles whole updates for accelerators that are not there: `make accelerators`.

`programs` traces an update in TensorFlow and hands it out as a program for XLA; `compiling`, in the environment of
requirements.txt, has the compilers of an NVIDIA H100 and of a TPU v5e translate it; `__main__` makes the page.
"""
