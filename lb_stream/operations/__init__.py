"""Operators' commands, one in each file: fields, effect, undo, and forms in lbctl and console.

A file is named after its kind of command. It imports little: the round passes it the objects that
it decides with (`CommandContext`, `OperatorMoves`, `SettingsChange`).
"""
