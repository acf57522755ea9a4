"""Point correspondences of two images: files of matches, two-view geometry, scenes to learn from."""
