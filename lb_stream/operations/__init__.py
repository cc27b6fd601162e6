"""Operators' commands, one in each file: its fields, its effect, its opposite, how people give it.

A file is named after its kind of command. It imports little: the round hands it what it decides
with (`CommandContext`, `OperatorMoves`, `SettingsChange`).
"""
