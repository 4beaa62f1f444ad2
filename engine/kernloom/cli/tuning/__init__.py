"""The command `tune`: studies on a device, and files of their winners."""
