"""What the tables tell: read models without a JVM. Nothing is printed here."""
