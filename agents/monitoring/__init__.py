"""Views of a run: TensorBoard, the line in the terminal, figures and reports."""
