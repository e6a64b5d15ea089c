"""A benchmark of fair federated learning: fixed tasks, two tracks, three measures.

What it shows, and how a method is added: reproduction/tasks/README.md.
"""
