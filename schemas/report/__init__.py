"""Reports that a person reads: HTML pages of a dataset and of a comparison; the frame and the charts of all pages."""

__all__ = ["charts", "data_report", "leakage", "thumbnails"]
