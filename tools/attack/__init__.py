"""Fuzzes, kills and damages for a given number of minutes, and judges what it finds by rules of its own.

    python -m tools.attack --minutes 30 --seed 1

Nothing here that judges (`oracle_*`, `read_back`) imports the code that is under attack.
"""
