"""Fuzzes, kills and damages for a given number of minutes, and judges what it finds by rules of its own.

    python -m tools.attack --minutes 30 --seed 1

Nothing here that judges (`oracle_rows`, `oracle_dataset`) imports the code that is under attack.
"""
