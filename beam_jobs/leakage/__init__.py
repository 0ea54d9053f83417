"""What a model could know of eval and test without having learned it: found in the passes that a job makes anyway."""

__all__ = ["combine", "findings", "images", "looks", "messages", "rows"]
