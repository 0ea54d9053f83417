"""Image files as a source: listed, decoded once, stored as they are, measured on the way."""

__all__ = ["facts", "folder_source", "image_lists", "pair_source", "reader", "replay"]
