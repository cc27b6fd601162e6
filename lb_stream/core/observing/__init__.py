"""What reports and memory together say: who is alive, which bundles there are, what has ended, and what open decisions will make of it."""
