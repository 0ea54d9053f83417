"""The gate before service: an export is scored beside the one in service, and promoted or refused, with the reasons."""

__all__ = ["gate", "options", "promote", "serving_folder"]
