"""The nouns: frozen facts with units in their names. Standard library and numpy only."""
