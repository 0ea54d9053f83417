"""Served models: what they take and give, and the proof that they see what training saw."""

__all__ = ["exporters", "outputs", "parity_records", "receivers", "restore", "saved_model", "skew_check"]
