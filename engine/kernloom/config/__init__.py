"""From command-line words to one validated experiment."""
