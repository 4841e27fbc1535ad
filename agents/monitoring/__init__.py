"""What a run shows: TensorBoard, the line in the terminal, figures and reports."""
