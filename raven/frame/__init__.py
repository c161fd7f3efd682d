"""A video frame: how its pixels are stored, where they land, and the passes that read them."""
