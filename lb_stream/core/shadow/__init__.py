"""Shadows: other policies on the same views, whose moves happen only in worlds of their own."""
