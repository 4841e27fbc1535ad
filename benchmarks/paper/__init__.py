"""The paper's figures beside ours: `make paper` draws them from the shipped tables and writes docs/paper.md."""
