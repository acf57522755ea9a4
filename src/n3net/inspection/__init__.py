"""What a block chooses, as figures and pictures, and the pictures of the paper's idea."""
