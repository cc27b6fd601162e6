"""What reports and memory together say: who is alive, which bundles there are, which decisions and moves have ended."""
