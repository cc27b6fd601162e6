"""Operators' commands, one in each file: what it takes, what it does, what takes it back, how
people give it.

A file is named after its kind of command, and imports little: only who decides needs what it
is handed (`CommandContext`, `OperatorMoves`, `SettingsChange`).
"""
