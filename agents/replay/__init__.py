"""Windows of experience: their layout, how they are cut and written, and the Reverb tables that hold them."""
