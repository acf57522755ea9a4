"""Networks on pictures: an array of any common type and size in, an array out."""
