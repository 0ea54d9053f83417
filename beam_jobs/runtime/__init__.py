"""One job from options to commit, and the runner that it runs on."""

__all__ = ["job", "runner"]
