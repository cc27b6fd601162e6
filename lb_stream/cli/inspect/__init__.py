"""Commands that only look: status, decisions, explanations, settings, the tables."""
