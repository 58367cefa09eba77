"""Measuring: what this machine carries, how fast Greenroom decodes on it, and how that compares with its peers."""
