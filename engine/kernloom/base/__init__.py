"""What everyone may import: errors, files, places, expressions, registries, text for people."""
